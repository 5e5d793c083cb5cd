// The stress over the poisoning pager: wherever userfaultfd is missing, and under sanitizers.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

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

// The segments that they have open are let go of by each as it ends.
TEST(simulated_heap_stress, threads_that_end_while_their_runtime_does) {
  constexpr std::size_t threads = 16;
  for (unsigned round = 0; round < steps / 200; ++round) {
    auto farheap = std::make_unique<runtime>(scarce(0.5));
    std::latch used(threads);
    std::vector<std::thread> all;
    for (std::size_t i = 0; i < threads; ++i) {
      all.emplace_back([&] {
        make_unique<std::uint64_t>(*farheap, 7u).reset();
        used.count_down();
      });
    }
    used.wait();
    farheap.reset();
    for (std::thread& one : all) one.join();
  }
}

// A thread has segments of few runtimes open, and lets go of those of the one that it has not used for longest.
TEST(simulated_heap_stress, a_thread_that_uses_others_while_a_runtime_ends) {
  std::vector<std::unique_ptr<runtime>> others;
  for (unsigned i = 0; i < 4; ++i) others.push_back(std::make_unique<runtime>(scarce(0.5)));
  for (unsigned round = 0; round < steps / 200; ++round) {
    auto farheap = std::make_unique<runtime>(scarce(0.5));
    std::latch used(1);
    std::thread user([&] {
      make_unique<std::uint64_t>(*farheap, 7u).reset();
      used.count_down();
      for (const auto& other : others) make_unique<std::uint64_t>(*other, 7u).reset();
    });
    used.wait();
    farheap.reset();
    user.join();
  }
}

}  // namespace
}  // namespace far
