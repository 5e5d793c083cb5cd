// The stress over the poisoning pager: wherever userfaultfd is missing, and under sanitizers.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/sanitizers.h"
#include "base/units.h"
#include "tests/support/heap_stress.h"
#include "tests/support/leaving_stress.h"
#include "tests/support/tag_stress.h"

namespace far {
namespace stress {

// Whether there is a pointer says a byte of the object, which the program changes like any other.
struct perhaps_parent {
  std::uint64_t number = 0;
  std::optional<unique_ptr<std::uint64_t>> child;
};

}  // namespace stress

template <>
struct pointers_of<stress::perhaps_parent> {
  static void visit(stress::perhaps_parent& in, auto&& pointer) { pointer(in.child); }
};

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

// ThreadSanitizer sees who looks at the byte, where the evacuator is looking for the pointers of what it has moved.
TEST(simulated_heap_stress, optional_pointers_of_objects_that_move) {
  using stress::perhaps_parent;
  runtime farheap(scarce(0.5));
  std::vector<unique_ptr<perhaps_parent>> all;
  for (std::uint64_t i = 0; i < 4000; ++i) all.push_back(make_unique<perhaps_parent>(farheap, perhaps_parent{i, {}}));
  std::atomic<bool> stop{false};
  std::thread evacuates([&] {
    while (!stop) static_cast<void>(farheap.evacuate(0));
  });
  std::mt19937_64 random(1);
  std::size_t wrong = 0;
  // Rounds are called off where this thread is interrupted in its scope, so their number depends on the machine.
  constexpr std::uint64_t least_moved = 100;
  const auto latest = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto enough = [&](std::size_t i) {
    if (i < 10 * steps || i % 1000 != 0) return false;
    return farheap.statistics().evacuated_objects > least_moved || std::chrono::steady_clock::now() > latest;
  };
  for (std::size_t i = 0; !enough(i); ++i) {
    const scope here(farheap);
    perhaps_parent& one = all[random() % all.size()].deref_mut(here);
    if (one.child) {
      wrong += one.child->deref(here) == one.number ? 0 : 1;
      one.child.reset();
    } else {
      one.child.emplace(make_unique<std::uint64_t>(farheap, one.number));
    }
  }
  stop = true;
  evacuates.join();
  EXPECT_EQ(wrong, 0u);
  farheap.validate();
  EXPECT_GT(farheap.statistics().evacuated_objects, least_moved);
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
