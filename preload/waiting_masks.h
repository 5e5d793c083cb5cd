// The signal masks with which calls wait (sigsuspend, ppoll, pselect, epoll_pwait): none may block a signal that is
// ours.
#pragma once

#include <array>

namespace far::preload {

// Whether a handler that ran while the thread waits would have our signals blocked, and die of its first call. A mask
// at a bad address is the kernel's to refuse.
[[nodiscard]] bool blocks_ours(long number, const std::array<long, 6>& arguments) noexcept;

// Gives the call a copy of such a mask, without our signals, in `scratch`, which has room for three words.
void replace_mask(long number, std::array<long, 6>& arguments, long* scratch) noexcept;

}  // namespace far::preload
