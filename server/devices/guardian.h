// A process between the server and a device, so that whatever the plugin starts ends with the device.
//
//     server -> guardian -> device -> children of its plugin, and theirs
//
// The guardian is their subreaper: those whose parent has ended become its children, also from sessions of their own.
// When the device ends, or SIGTERM tells that it is to, or that the server has ended, it kills all of them.
#pragma once

#include <string>

namespace far::server {

// Call it while the process has one thread. Returns true in a child of the calling process, which is the device from
// then on; the calling process stays its guardian and never returns. False: `server` is not its parent any more, or the
// system gives no process. `server`: the number of a process.
[[nodiscard]] bool become_guarded(const std::string& server);

}  // namespace far::server
