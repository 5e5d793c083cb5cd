// The one process-wide runtime of the run door: started before the program, reporting after it.
#pragma once

#include <cstdint>

#include "pager/pager.h"

namespace far::preload {

// The pager that serves this process, or nullptr: before start-up, and in processes that `farheap run` did not set up.
[[nodiscard]] pager::pager* active_pager() noexcept;

// In the child of a fork, on its only thread: what was its parent's memory is its own, and what belongs to the parent
// alone is let go, such as the name under which it listens. It has one of its own when it has lived for a second.
void settle_in_child() noexcept;

// Around a fork: what a child of fork takes to be a part of its job, it has or has not when it forks itself.
void lock_control_for_fork() noexcept;
void unlock_control_after_fork() noexcept;

// Before this process becomes another program: tells its job what it counted. Does nothing in the child of a vfork.
void tell_before_exec() noexcept;

// True for the first in the whole job that asks with this `hash`, for what is to be said once.
[[nodiscard]] bool is_first_to_name(std::uint64_t hash) noexcept;

// Writes what `farheap run` promises at exit, once. For the ways out of a process that run no destructors.
void report_at_exit() noexcept;

}  // namespace far::preload
