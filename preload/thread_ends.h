// The ends of the program's threads. While a thread ends, nobody can resolve the kernel's misses. And the runtime's own
// threads must not keep a process alive when the program's threads have ended.
#pragma once

#include <cstddef>
#include <span>

namespace far::preload {

// From now on the ends of the calling thread, and of all threads that the program starts, are noticed. Called once, by
// the main thread.
void watch_thread_ends() noexcept;

// In the child of a fork, on its only thread.
void watch_thread_ends_in_child() noexcept;
// The memory that is pinned because the calling thread's stack is far, each page once; empty if it is local.
[[nodiscard]] std::span<const std::byte> pinned_tcb_of_this_thread() noexcept;

// The calling thread is about to end by a system call of its own rather than through the C library. Does not return
// when it is the program's last: the process ends with `status`.
void end_thread_without_c_library(int status) noexcept;

// Ends the process if the kernel alone stopped the program's last thread, as strict seccomp does. None of our code
// could then run on it, and natively the process would have ended. Called now and then, by a thread of the runtime.
void end_with_last_thread() noexcept;

// Whether the program has no other thread than the calling one.
[[nodiscard]] bool is_only_thread() noexcept;

// Whether a thread of this process waits for the child of its vfork.
[[nodiscard]] bool waits_for_vfork(pid_t thread) noexcept;

// Releases pages that were held for threads that have ended. Called now and then, by a thread of the runtime.
void release_pages_of_ended_threads() noexcept;

}  // namespace far::preload
