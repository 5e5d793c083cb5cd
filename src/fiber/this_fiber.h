// Operations on the calling fiber or, on an OS thread that runs no fiber, on the thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "fiber/identity.h"
#include "fiber/waiter.h"

namespace far::fiber {

[[nodiscard]] bool on_fiber() noexcept;

// Lets other ready fibers run first, by priority; returns at once when there are none. The fiber may continue on
// another worker, as after everything in this folder that waits: addresses of thread-local variables, errno among them,
// must be taken again.
void yield() noexcept;
// The same, but only if the fiber has not let others run since the last call of this. For what mostly waits by itself,
// and would keep the worker where it never has to. Nothing on an OS thread.
void yield_unless_waited() noexcept;

void sleep_until(time_point when) noexcept;
void sleep_for(std::chrono::nanoseconds how_long) noexcept;

// The calling fiber's name and number (from 1, in the order of spawning). "" and 0 on an OS thread.
[[nodiscard]] const char* current_name() noexcept;
[[nodiscard]] std::uint64_t current_number() noexcept;

}  // namespace far::fiber
