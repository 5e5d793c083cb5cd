// Random programs of containers beside those of std, in a few pages of local memory, of which any may leave at any time
// (the poisoning pager). Constructors, comparisons, hashes and allocations of local memory fail at random. Then either
// nothing has happened, or, where a function promises less, the elements that are there are whole. All are destroyed
// once. A seed chooses the options, and what is done.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "far/fiber.h"
#include "far/hash_map.h"
#include "far/runtime.h"
#include "far/unique_ptr.h"
#include "heap/hazard_log.h"
#include "heap/scope_records.h"
#include "tests/containers/random_maps.h"
#include "tests/containers/random_sequences.h"
#include "tests/support/failing_new.h"

namespace far {
namespace random_program {
namespace {

runtime_options small_options() {
  runtime_options chosen;
  chosen.local_bytes = 256 * kib;
  chosen.workers = 1;
  return chosen;
}

// Runs `body` on threads that have not used far pointers and live side by side, until it returns true: records of
// threads that have ended are used again, and need no memory. Returns whether it did. So tests with it come first.
bool on_fresh_threads(const std::function<bool()>& body) {
  constexpr std::size_t most = 64;
  std::vector<std::thread> all;
  std::latch end(1);
  std::atomic<bool> did{false};
  for (std::size_t i = 0; i < most && !did; ++i) {
    std::latch done(1);
    all.emplace_back([&] {
      if (body()) did = true;
      done.count_down();
      end.wait();
    });
    done.wait();
  }
  end.count_down();
  for (std::thread& one : all) one.join();
  return did;
}

TEST(without_memory, the_first_scope_of_a_thread_throws) {
  runtime farheap(small_options());
  unique_ptr<std::uint64_t> one = make_unique<std::uint64_t>(farheap, 7u);
  EXPECT_TRUE(on_fresh_threads([&] {
    allocations_to_go = -1;
    bool threw = false;
    try {
      EXPECT_EQ(one.read(), 7u);
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    allocations_to_go = 0;
    EXPECT_EQ(one.read(), 7u);
    return threw;
  }));
}

TEST(without_memory, what_cannot_throw_says_why_the_process_ends) {
  EXPECT_DEATH(
      {
        runtime farheap(small_options());
        std::vector<unique_ptr<std::uint64_t>> all;
        for (std::uint64_t i = 0; i < 64; ++i) all.push_back(make_unique<std::uint64_t>(farheap, i));
        static_cast<void>(on_fresh_threads([&] {
          allocations_to_go = -1;
          all.pop_back();
          allocations_to_go = 0;
          return false;
        }));
      },
      "first use of far pointers");
}

// Takes all records that others have given back, and one more.
std::vector<std::unique_ptr<heap::borrowed_record>> take_spare_records() {
  std::vector<std::unique_ptr<heap::borrowed_record>> taken;
  const heap::owner_record* const newest = heap::first_record();
  while (heap::first_record() == newest) taken.push_back(std::make_unique<heap::borrowed_record>());
  return taken;
}

// It is only a hint.
TEST(without_memory, a_prefetch_does_nothing_and_says_nothing) {
  runtime_options chosen = small_options();
  chosen.page_path_share = 2;
  runtime farheap(chosen);
  const unique_ptr<std::uint64_t> one = make_unique<std::uint64_t>(farheap, 7u);
  EXPECT_EQ(one.read(), 7u);
  const auto taken = take_spare_records();
  farheap.evict_all();
  testing::internal::CaptureStderr();
  for (int fails_at = 1; fails_at < 3; ++fails_at) {
    allocations_to_go = fails_at;
    EXPECT_FALSE(one.prefetch());
    allocations_to_go = 0;
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(one.read(), 7u);
}

// Everybody waits for an object that is being fetched.
TEST(without_memory, a_prefetch_keeps_nobody_from_its_object) {
  runtime_options chosen = small_options();
  chosen.page_path_share = 2;
  runtime farheap(chosen);
  const unique_ptr<std::uint64_t> one = make_unique<std::uint64_t>(farheap, 7u);
  EXPECT_EQ(one.read(), 7u);
  const auto taken = take_spare_records();
  farheap.evict_all();
  fibers_have_memory = false;
  EXPECT_TRUE(one.prefetch());
  std::future<std::uint64_t> read = std::async(std::launch::async, [&] { return one.read(); });
  FAR_CHECK(read.wait_for(std::chrono::minutes(1)) == std::future_status::ready, "a prefetch ends");
  EXPECT_EQ(read.get(), 7u);
  fibers_have_memory = true;
  farheap.validate();
}

// So that far pointers can be moved and destroyed, which must not throw.
TEST(without_memory, work_with_a_few_pages_needs_none) {
  heap::hazard_log log;
  allocations_to_go = -1;
  for (unsigned round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < 60; ++i) log.hold(7 + i * heap::hazard_log::slot_count);  // all in one slot
    log.hold(7 + 30 * heap::hazard_log::slot_count);
    EXPECT_EQ(log.held(), 60u);
    log.cut_back(round * 20);
    log.cut_back(0);
  }
  allocations_to_go = 0;
}

// It is in the middle of its work, and holds locks.
TEST(without_memory, a_round_of_the_evacuator_needs_none_however_many_objects_move) {
  runtime_options chosen = small_options();
  chosen.local_bytes = 8 * mib;
  chosen.evacuate_garbage_share = 2;
  runtime farheap(chosen);
  std::vector<unique_ptr<std::uint64_t>> all;
  for (std::uint64_t i = 0; i < 100'000; ++i) all.push_back(make_unique<std::uint64_t>(farheap, i));
  for (std::size_t i = 0; i < all.size(); i += 2) all[i].reset();
  allocations_to_go = -1;
  EXPECT_NO_THROW(static_cast<void>(farheap.evacuate(0.3)));
  allocations_to_go = 0;
  EXPECT_GT(farheap.statistics().evacuated_objects, 1'000u);
  for (std::uint64_t i = 1; i < all.size(); i += 2) EXPECT_EQ(all[i].read(), i);
  farheap.validate();
}

// Neither a helper thread for blocking calls, nor what is written of one that cannot start, ends the program.
TEST(without_memory, blocking_calls_are_made_all_the_same) {
  for (int fails_at = 1; fails_at < 6; ++fails_at) {
    runtime farheap(small_options());
    farheap.run([&] {
      allocations_to_go = fails_at;
      EXPECT_EQ(blocking([] { return 7; }), 7);
      allocations_to_go = 0;
    });
  }
}

// The change has happened, so what is tidied up afterwards must not fail.
TEST(without_memory, what_leaves_a_limited_map_is_left_for_later) {
  runtime farheap(small_options());
  hash_map<std::uint64_t, std::uint64_t> few(farheap, {.entries = 20});
  std::uint64_t failed = 0;
  for (std::uint64_t key = 0; key < 400; ++key) {
    allocations_to_go = static_cast<int>(1 + key % 3);
    try {
      few.put(key, key);
    } catch (const std::bad_alloc&) {
      ++failed;
      allocations_to_go = 0;
      EXPECT_FALSE(few.contains(key)) << key << ": what throws has not happened";
    }
    allocations_to_go = 0;
  }
  EXPECT_GT(failed, 0u);
  few.put(1'000u, 0u);
  EXPECT_LE(few.size(), 20u);
}

TEST(without_memory, what_has_left_a_map_of_what_is_local_is_dropped_later) {
  runtime farheap(small_options());
  hash_map<std::uint64_t, std::uint64_t> cache(farheap, while_local{});
  constexpr std::uint64_t count = 100;
  for (std::uint64_t key = 0; key < count; ++key) cache.put(key, key);
  farheap.evict_all();
  allocations_to_go = -1;
  EXPECT_FALSE(cache.update(count, [](std::uint64_t& /*value*/) {}));
  allocations_to_go = 0;
  const std::size_t not_dropped = cache.size();
  EXPECT_GT(not_dropped, count / 2) << "the test drops them where there is no memory";
  EXPECT_FALSE(cache.update(count, [](std::uint64_t& /*value*/) {}));
  EXPECT_LT(cache.size(), not_dropped / 2);
}

// All or nothing.
TEST(without_memory, a_map_is_not_half_cleared) {
  runtime farheap(small_options());
  hash_map<std::uint64_t, std::uint64_t> all(farheap);
  for (std::uint64_t key = 0; key < 500; ++key) all.put(key, key);
  allocations_to_go = 3;
  EXPECT_THROW(all.clear(), std::bad_alloc);
  allocations_to_go = 0;
  EXPECT_EQ(all.size(), 500u);
  all.clear();
  EXPECT_TRUE(all.empty());
}

void run_program(runtime& farheap, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::unique_ptr<subject>> all;
  all.push_back(std::make_unique<vectors<solid, 16>>(random()));
  all.push_back(std::make_unique<vectors<solid, 2048>>(random()));
  all.push_back(std::make_unique<vectors<linked, 4>>(random()));
  all.push_back(std::make_unique<vectors<linked, 128>>(random()));
  all.push_back(std::make_unique<lists<solid>>(random()));
  all.push_back(std::make_unique<lists<linked>>(random()));
  all.push_back(std::make_unique<queues<solid>>(random()));
  all.push_back(std::make_unique<queues<linked>>(random()));
  all.push_back(std::make_unique<maps<solid>>(random()));
  all.push_back(std::make_unique<maps<linked>>(random()));
  all.push_back(std::make_unique<caches>(random()));
  all.push_back(std::make_unique<arrays_and_texts>(random()));
  for (unsigned step = 0; step < 1'500 && !testing::Test::HasFailure(); ++step) {
    subject& one = *all[random() % all.size()];
    one.step();
    if (step % 10 == 0) one.compare();
    if (step % 150 == 0) farheap.evict_all();
    if (step % 70 == 0) static_cast<void>(farheap.evacuate(0.2));
  }
  for (const auto& one : all) one->compare();
  // What destroys needs no memory.
  allocations_to_go = -1;
  all.clear();
  allocations_to_go = 0;
}

void run_seed(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  runtime_options chosen;
  chosen.local_bytes = (64 * kib) << random() % 4;
  chosen.workers = 1;  // so that a fiber stays on its thread, where allocations fail
  chosen.page_path_share = std::array{0.0, 0.5, 2.0}[random() % 3];
  chosen.evacuate_garbage_share = 0.3;
  runtime farheap(chosen);
  home = &farheap;
  if (random() % 2 == 0) {
    run_program(farheap, random());
  } else {
    farheap.spawn([&] { run_program(farheap, random()); }, {.stack_bytes = mib}).join();
  }
  farheap.validate();
  EXPECT_EQ(living, 0) << "elements were destroyed once each";
}

// FARHEAP_CONTAINER_SEED runs one again, FARHEAP_CONTAINER_SEEDS more than usual.
TEST(random_containers, do_what_those_of_std_do) {
  const char* const again = std::getenv("FARHEAP_CONTAINER_SEED");
  const char* const more = std::getenv("FARHEAP_CONTAINER_SEEDS");
  const std::uint64_t first = again == nullptr ? 1 : std::strtoull(again, nullptr, 10);
  const std::uint64_t count = again != nullptr ? 1 : more != nullptr ? std::strtoull(more, nullptr, 10) : 8;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("FARHEAP_CONTAINER_SEED=" + std::to_string(seed));
    run_seed(seed);
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace random_program
}  // namespace far
