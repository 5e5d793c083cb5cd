// Signal handlers of the program that want no signal stack, in fault_mode::in_line. The kernel would push their frame
// on the thread's own stack, which may be far, and end the process where that is not resident: its own misses nobody
// can resolve. So it pushes the frame on our signal stack, and we move it to where it belongs, as the thread itself.
#pragma once

#include "preload/signals.h"

namespace far::preload {

// Behaves like rt_sigaction(2) of a signal that is not ours: the result is the kernel's, negative on failure.
// Requires: the calling thread is in a signal handler.
[[nodiscard]] long exchange_relayed_action(int number, const kernel_action* action, kernel_action* old,
                                           std::size_t mask_bytes) noexcept;

// In the child of a fork: another thread of the parent may have been changing an action.
void open_relayed_actions_in_child() noexcept;

}  // namespace far::preload
