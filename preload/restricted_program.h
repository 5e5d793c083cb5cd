// Programs that restrict their own system calls (seccomp). In fault_mode::in_line their threads would need those of the
// runtime as well, so the thread mode suits them better.
#pragma once

namespace far::preload {

// Whether a system call restricts the calling thread, and the threads and children that it makes from then on.
[[nodiscard]] bool restricts_calls(long number, long first_argument) noexcept;

// Whether the program is likely to restrict itself: it has loaded a library for that, or its constants name some of the
// kernel's, as error messages do. May say no of one that does, and yes of one that does not.
[[nodiscard]] bool may_restrict_itself() noexcept;

}  // namespace far::preload
