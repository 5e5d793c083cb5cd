// Programs that restrict their own system calls (seccomp). In fault_mode::in_line their threads would need those of the
// runtime as well, so the thread mode suits them better; as it does those whose memory virtual machines use (KVM).
#pragma once

namespace far::preload {

// Whether a system call restricts the calling thread, and the threads and children that it makes from then on.
[[nodiscard]] bool restricts_calls(long number, long first_argument) noexcept;

// Whether the program is likely to be one of these: it has loaded a library for that, or its constants name some of the
// kernel's, as error messages do, or its device. May say no of one that is, and yes of one that is not.
[[nodiscard]] bool suits_thread_mode() noexcept;

}  // namespace far::preload
