// The options of a scheduler and of a fiber.
#pragma once

#include <chrono>
#include <cstddef>

#include "fiber/priority.h"

namespace far::fiber {

struct scheduler_options {
  unsigned workers = 0;      // OS threads that run fibers; 0: one for each CPU that the process may use
  bool pin_workers = false;  // each to a CPU of its own
  // How long an idle worker looks for fibers before it sleeps. Longer: woken sooner, at the cost of CPU time.
  std::chrono::nanoseconds idle_spin = std::chrono::microseconds(20);
  unsigned most_helpers = 16;  // threads for blocking(); started when needed
};

struct spawn_options {
  priority level = priority::normal;  // `in_scope` is not for here: a fiber gets there by a scope_mark
  std::size_t stack_bytes = 0;        // 0: default_stack_bytes(); rounded up, at least smallest_stack_bytes()
  const char* name = nullptr;         // for messages; copied, cut at 31 characters
};

}  // namespace far::fiber
