// The one process-wide runtime of the run door: started before the program, reporting after it.
#pragma once

#include <cstdint>

#include "pager/pager.h"

namespace far::preload {

// The pager that serves this process, or nullptr: before start-up, and in processes that `farheap run` did not set up.
[[nodiscard]] pager::pager* active_pager() noexcept;

// In the child of a fork, on its only thread: takes over its copy of the parent's memory, and releases the parent's own
// property, such as the name under which it listens. The child gets a name of its own after a second.
void settle_in_child() noexcept;

// Whether misses are resolved in fault_mode::in_line. Requires: active_pager().
[[nodiscard]] bool resolves_in_line() noexcept;

// Whether this is the child of a vfork, which runs on the memory of its parent, the runtime's included.
[[nodiscard]] bool in_borrowed_memory() noexcept;

// Around a fork: a child of fork that is just joining its job finishes before it forks itself.
void lock_control_for_fork() noexcept;
void unlock_control_after_fork() noexcept;

// Before this process becomes another program: publishes its counts. Does nothing in the child of a vfork.
void tell_before_exec() noexcept;

// True for the first caller in the whole job with this `hash`; for messages that appear once.
[[nodiscard]] bool is_first_to_name(std::uint64_t hash) noexcept;

// The calling thread is about to restrict its own system calls (restricted_program.h): what the process has left to
// report at its end is no longer reported by the thread that ends it.
void note_restriction() noexcept;
[[nodiscard]] bool has_restricted_itself() noexcept;

// Writes the exit line and the statistics file, once. For the ways out of a process that run no destructors.
void report_at_exit() noexcept;

}  // namespace far::preload
