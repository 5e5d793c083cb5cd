// poll(2) for the runtime inside a program, which may have set any limit on descriptors.
#pragma once

#include <poll.h>

#include <cstdint>
#include <span>

namespace far::platform {

// Waits until a descriptor is ready (POLLIN, POLLOUT; negative ones are left out), or for `timeout_ns`; a negative one
// is for ever. Returns how many are ready, with their `revents`, or -1 with errno, as poll(2) does. The kernel refuses
// poll(2) where more descriptors are given than the process may have (RLIMIT_NOFILE, which sandboxes set to 0), open as
// they are. There they are watched by select(2), and a number that this cannot watch is never ready.
int wait_for_events(std::span<pollfd> watched, std::int64_t timeout_ns) noexcept;

}  // namespace far::platform
