// Shared by the tests of src/fiber: sizes that sanitizers can bear, and waits that end.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "fiber/sanitizers.h"
#include "fiber/scheduler.h"
#include "fiber/this_fiber.h"

namespace far::fiber::testing {

using namespace std::chrono_literals;

// Long enough for any machine; a test that waits so long has failed.
inline constexpr auto patience = 60s;

// `count` in plain builds, a fraction of it under sanitizers.
[[nodiscard]] constexpr unsigned scaled(unsigned count, unsigned fraction = 20) {
  return sanitizers::present ? count / fraction : count;
}

[[nodiscard]] inline scheduler_options with_workers(unsigned count) {
  scheduler_options chosen;
  chosen.workers = count;
  return chosen;
}

// Waits until `holds` on any thread or fiber; false when it never does.
template <typename Predicate>
[[nodiscard]] bool eventually(Predicate holds) {
  const time_point deadline = after(patience);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    sleep_for(100us);
  }
  return true;
}

}  // namespace far::fiber::testing
