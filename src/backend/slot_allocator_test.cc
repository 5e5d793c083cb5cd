#include "backend/slot_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace far::backend {
namespace {

TEST(slot_allocator, nothing_is_available_before_extend) {
  slot_allocator slots(1000);
  EXPECT_FALSE(slots.allocate(1).has_value());
  slots.extend(10);
  EXPECT_EQ(slots.allocate(10), 0u);
  EXPECT_FALSE(slots.allocate(1).has_value());
  EXPECT_EQ(slots.used(), 10u);
  slots.validate();
}

TEST(slot_allocator, successive_allocations_are_adjacent) {
  slot_allocator slots(1000);
  slots.extend(1000);
  slots.free(slots.allocate(500).value(), 100);
  EXPECT_EQ(slots.allocate(3), 500u);
  EXPECT_EQ(slots.allocate(64), 503u);
  EXPECT_EQ(slots.allocate(433), 567u);
  EXPECT_EQ(slots.allocate(1), 0u) << "nothing follows the last allocation: the lowest run";
}

TEST(slot_allocator, finds_the_only_run_wherever_it_lies) {
  constexpr std::uint64_t capacity = 5000;
  for (const std::uint64_t count : {1u, 2u, 31u, 62u, 63u, 64u, 65u, 127u, 200u, 1000u}) {
    for (const std::uint64_t first : {0u, 1u, 63u, 64u, 65u, 500u, 511u, 512u, 513u, 3999u, 4000u}) {
      slot_allocator slots(capacity);
      slots.extend(capacity);
      ASSERT_EQ(slots.allocate(capacity), 0u);
      slots.free(first, count);
      EXPECT_FALSE(slots.allocate(count + 1).has_value());
      EXPECT_EQ(slots.allocate(count), first);
      slots.validate();
    }
  }
}

TEST(slot_allocator, a_nearly_full_large_map_gives_up_its_one_run) {
  constexpr std::uint64_t capacity = std::uint64_t{1} << 22;
  slot_allocator slots(capacity);
  slots.extend(capacity);
  ASSERT_EQ(slots.allocate(capacity), 0u);
  for (slot_id slot = 0; slot < capacity; slot += 64) slots.free(slot, 63);
  EXPECT_FALSE(slots.allocate(64).has_value());
  slots.free(capacity - 6401, 1);
  EXPECT_EQ(slots.allocate(64), capacity - 6464);
  slots.validate();
}

TEST(slot_allocator, the_largest_map_costs_only_what_is_used) {
  slot_allocator slots(slot_allocator::maximum_capacity_slots);
  slots.extend(100'000);
  EXPECT_EQ(slots.allocate(100'000), 0u);
  EXPECT_FALSE(slots.allocate(1).has_value());
  slots.validate();
}

TEST(slot_allocator, free_at_end_counts_the_run_below_the_limit) {
  slot_allocator slots(1000);
  EXPECT_EQ(slots.free_at_end(), 0u);
  slots.extend(130);
  EXPECT_EQ(slots.free_at_end(), 130u);
  ASSERT_EQ(slots.allocate(60), 0u);
  EXPECT_EQ(slots.free_at_end(), 70u);
  ASSERT_EQ(slots.allocate(70), 60u);
  EXPECT_EQ(slots.free_at_end(), 0u);
  slots.free(129, 1);
  EXPECT_EQ(slots.free_at_end(), 1u);
  slots.extend(140);
  EXPECT_EQ(slots.free_at_end(), 11u);
}

TEST(slot_allocator, is_scattered_where_much_is_free) {
  constexpr std::uint64_t capacity = 1 << 17;
  slot_allocator slots(capacity);
  slots.extend(capacity);
  ASSERT_EQ(slots.allocate(capacity), 0u);
  EXPECT_FALSE(slots.is_scattered());
  // A third is free, and then a half.
  for (slot_id slot = 0; slot < capacity; slot += 3) slots.free(slot, 1);
  EXPECT_FALSE(slots.is_scattered());
  for (slot_id slot = 1; slot < capacity; slot += 6) slots.free(slot, 1);
  EXPECT_TRUE(slots.is_scattered());
}

TEST(slot_allocator, claim_takes_exactly_these_or_nothing) {
  slot_allocator slots(512);
  slots.extend(300);
  EXPECT_TRUE(slots.claim(100, 100));
  EXPECT_FALSE(slots.claim(50, 51));
  EXPECT_FALSE(slots.claim(250, 51)) << "beyond the limit";
  EXPECT_TRUE(slots.claim(200, 100));
  EXPECT_TRUE(slots.all_allocated(100, 200));
  EXPECT_FALSE(slots.all_allocated(99, 2));
  EXPECT_FALSE(slots.all_allocated(299, 2));
  EXPECT_EQ(slots.used(), 200u);
  slots.validate();
}

using slot_allocator_death_test = testing::Test;

TEST(slot_allocator_death_test, freeing_what_is_not_allocated_stops_the_process) {
  slot_allocator slots(200);
  slots.extend(100);
  ASSERT_EQ(slots.allocate(10), 0u);
  slots.free(5, 1);
  EXPECT_DEATH(slots.free(5, 1), "not allocated was freed");
  EXPECT_DEATH(slots.free(9, 2), "not allocated was freed");
  EXPECT_DEATH(slots.free(100, 1), "does not exist");
  EXPECT_DEATH(slots.free(no_slot, 1), "does not exist");
}

// Random allocations, frees, claims and extensions against a plain vector of flags.
TEST(slot_allocator, agrees_with_a_model) {
  constexpr std::uint64_t capacity = 2999;
  constexpr std::uint32_t seed = 20240817;
  std::mt19937 random(seed);
  slot_allocator slots(capacity);
  std::vector<bool> available(capacity, false);
  std::vector<std::pair<slot_id, std::size_t>> runs;
  std::uint64_t limit = 0;
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t count = random() % 8 == 0 ? 1 + random() % 300 : 1 + random() % 70;
    const unsigned action = random() % 16;
    if (action == 0 && limit < capacity) {
      const std::uint64_t grown = std::min<std::uint64_t>(capacity, limit + random() % 150);
      slots.extend(grown);
      for (; limit < grown; ++limit) available[limit] = true;
    } else if (action < 9) {
      const std::optional<slot_id> first = slots.allocate(count);
      std::size_t longest = 0;
      for (std::size_t slot = 0, run = 0; slot < capacity; ++slot) {
        run = available[slot] ? run + 1 : 0;
        longest = std::max(longest, run);
      }
      ASSERT_EQ(first.has_value(), longest >= count) << "step " << step << " seed " << seed;
      if (!first) continue;
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(available.at(*first + i)) << "step " << step << " seed " << seed;
        available[*first + i] = false;
      }
      runs.emplace_back(*first, count);
    } else if (!runs.empty()) {
      std::swap(runs[random() % runs.size()], runs.back());
      auto& [first, length] = runs.back();
      const std::size_t part = 1 + random() % length;
      slots.free(first, part);
      std::fill_n(available.begin() + static_cast<std::ptrdiff_t>(first), part, true);
      first += part;
      length -= part;
      if (length == 0) runs.pop_back();
    }
    if (step % 64 == 0) slots.validate();
  }
  slots.validate();
}

TEST(slot_allocator, threads_never_share_a_slot) {
  constexpr std::uint64_t capacity = 20'000;
  slot_allocator slots(capacity);
  slots.extend(capacity);
  std::vector<std::atomic<int>> owners(capacity);
  std::atomic<int> clashes{0};
  std::vector<std::thread> threads;
  for (unsigned id = 1; id <= 4; ++id) {
    threads.emplace_back([&, id] {
      std::mt19937 random(id);
      std::vector<std::pair<slot_id, std::size_t>> mine;
      for (int step = 0; step < 5000; ++step) {
        if (random() % 2 == 0 || mine.empty()) {
          const std::size_t count = 1 + random() % 64;
          const std::optional<slot_id> first = slots.allocate(count);
          if (!first) continue;
          for (std::size_t i = 0; i < count; ++i) clashes += owners[*first + i].exchange(static_cast<int>(id)) != 0;
          mine.emplace_back(*first, count);
        } else {
          const auto [first, count] = mine.back();
          mine.pop_back();
          for (std::size_t i = 0; i < count; ++i) owners[first + i] = 0;
          slots.free(first, count);
        }
      }
      for (const auto& [first, count] : mine) {
        for (std::size_t i = 0; i < count; ++i) owners[first + i] = 0;
        slots.free(first, count);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clashes, 0);
  EXPECT_EQ(slots.used(), 0u);
  slots.validate();
}

}  // namespace
}  // namespace far::backend
