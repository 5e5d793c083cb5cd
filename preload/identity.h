// What a thread or process of the program asks of the kernel for itself alone, and the runtime's threads and memory are
// not to have, or not to stand in the way of.
#pragma once

#include <array>

namespace far::preload {

// Before the program enters a mount namespace (setns), which the kernel refuses while other threads share its root and
// working folder: those of the runtime have their own from now on.
void leave_folders_to_program() noexcept;

// prctl(2) about merged pages, which are advice and of which the kernel is not told (platform/page_merging.h), and
// about names of memory, of which it is told where it is not far. `rest` are the arguments behind the first. Returns
// whether it was such a call; then `*result` is its result, or -errno.
[[nodiscard]] bool serve_request(long option, const std::array<unsigned long, 4>& rest, long* result) noexcept;

}  // namespace far::preload
