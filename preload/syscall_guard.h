// The guard of system calls in fault_mode::in_line. See docs/decisions/0005-inline-mode-in-the-run-door.md.
//
// The kernel hands every system call of a program thread back to us (system call user dispatch) as a SIGSYS. We make
// resident and pin the far memory that the call touches, and let the thread make the call itself, from code of ours
// that is not dispatched, with its own signal mask: it can be interrupted and restarted as ever.
#pragma once

#include "base/result.h"

namespace far::preload {

// Arms the calling thread, and by it all threads and children that it starts. Requires: active_pager(); to be called
// once, at start. Fails with what to do instead on kernels and machines that cannot do it.
[[nodiscard]] result<void> guard_system_calls();

}  // namespace far::preload
