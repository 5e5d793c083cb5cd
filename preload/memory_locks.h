// mlockall(2): the program's memory is locked, except for far memory, which moves within the budget, and the runtime's
// own, which is mapped for the largest program and filled on demand.
#pragma once

#include <cstddef>

namespace far::preload {

// After MCL_FUTURE, locks a mapping that the kernel has just made for the program. Returns false, with errno, when the
// limit on locked memory forbids it.
[[nodiscard]] bool lock_future_mapping(void* address, std::size_t bytes);

// Whether MCL_FUTURE is asked for.
[[nodiscard]] bool locks_future_mappings() noexcept;

// Whether the limit allows that all of a range is locked. The range is in whole pages.
[[nodiscard]] bool may_lock(const void* address, std::size_t bytes);

// In the child of a fork, which inherits no locks.
void forget_locks_in_child() noexcept;

}  // namespace far::preload
