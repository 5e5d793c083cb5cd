// The stress over the poisoning pager: wherever userfaultfd is missing, and under sanitizers.
#include <gtest/gtest.h>

#include <cstddef>

#include "base/sanitizers.h"
#include "base/units.h"
#include "tests/support/heap_stress.h"
#include "tests/support/leaving_stress.h"
#include "tests/support/tag_stress.h"

namespace far {
namespace {

runtime_options scarce(double page_path_share) {
  runtime_options chosen;
  chosen.local_bytes = mib;
  chosen.workers = 2;
  chosen.page_path_share = page_path_share;
  return chosen;
}

constexpr std::size_t steps = has_thread_sanitizer ? 4'000 : 20'000;
constexpr stress::scale few{.fibers = 12, .threads = 2, .objects_each = 1500, .steps = steps};

TEST(simulated_heap_stress, both_paths) {
  stress::run(scarce(0.5), few);
}
TEST(simulated_heap_stress, objects_only) {
  stress::run(scarce(2), few);
}
TEST(simulated_heap_stress, pages_only) {
  stress::run(scarce(0), few);
}
TEST(simulated_heap_stress, handlers_of_leaving_objects) {
  stress::run_leaving(scarce(0.5), 12'000, steps);
}

TEST(simulated_heap_stress, tags_that_are_given_back) {
  stress::run_tags(scarce(0.5), steps / 100);
}

}  // namespace
}  // namespace far
