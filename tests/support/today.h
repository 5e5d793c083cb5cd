// Cases that take turns by day, as in the integration tests (tests/integration/support.py, of_today()).
#pragma once

#include <cstddef>
#include <cstdlib>
#include <ctime>

namespace far::testing_support {

// Whether this run has case `number` of a test with more of them than each run needs. Every day (UTC) has one of `days`
// cases, all of them are had in that many days, and in each run with FARHEAP_ALL_CASES in its environment, as in the
// soak.
[[nodiscard]] inline bool is_of_today(std::size_t number, std::size_t days) {
  static const bool has_all = std::getenv("FARHEAP_ALL_CASES") != nullptr;
  static const std::size_t day = static_cast<std::size_t>(std::time(nullptr)) / 86'400;
  return has_all || (day + number) % days == 0;
}

}  // namespace far::testing_support
