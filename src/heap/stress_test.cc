// The stress on the real kernel. `FARHEAP_SOAK=1` runs for minutes. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/sanitizers.h"
#include "tests/support/heap_stress.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using heap_stress = heap::real_pager_test<>;

std::size_t steps_each() {
  if (std::getenv("FARHEAP_SOAK") != nullptr) return 2'000'000;
  return has_address_sanitizer ? 4'000 : 8'000;  // it is in `release` each time, too
}

runtime_options scarce(runtime_options::guard guard, double page_path_share) {
  runtime_options chosen;
  chosen.local_bytes = 16 * mib;
  chosen.far = "memory:?latency=5us";
  chosen.workers = 2;
  chosen.page_path_share = page_path_share;
  chosen.hardware_guard = guard;
  return chosen;
}

TEST_F(heap_stress, both_paths_with_a_fault_thread) {
  stress::run(scarce(runtime_options::guard::thread, 0.5), {.steps = steps_each()});
}
TEST_F(heap_stress, both_paths_with_inline_guards) {
  stress::run(scarce(runtime_options::guard::in_line, 0.5), {.steps = steps_each()});
}
TEST_F(heap_stress, objects_only) {
  stress::run(scarce(runtime_options::guard::thread, 2), {.steps = steps_each()});
}

}  // namespace
}  // namespace far
