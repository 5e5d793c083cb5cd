#include "engine/slot_reads.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace far::engine {
namespace {

TEST(slot_reads, a_slot_that_nobody_reads_is_the_callers_to_free) {
  slot_reads reads;
  slot_reads::entry one;
  reads.begin(one, 7);
  EXPECT_FALSE(reads.leave_to_readers(8));
  EXPECT_FALSE(reads.leave_to_readers(7 + 256)) << "another slot in the same list";
  EXPECT_FALSE(reads.end(one));
  EXPECT_FALSE(reads.leave_to_readers(7));
  EXPECT_EQ(reads.owned_slots(), 0u);
}

TEST(slot_reads, the_last_read_of_a_slot_frees_it) {
  slot_reads reads;
  std::array<slot_reads::entry, 3> entries;
  reads.begin(entries[0], 7);
  reads.begin(entries[1], 7);
  reads.begin(entries[2], 7 + 256);
  EXPECT_TRUE(reads.leave_to_readers(7));
  EXPECT_EQ(reads.owned_slots(), 1u);
  // Whichever of the two ends first.
  EXPECT_FALSE(reads.end(entries[1]));
  EXPECT_EQ(reads.owned_slots(), 1u);
  EXPECT_FALSE(reads.end(entries[2]));
  EXPECT_TRUE(reads.end(entries[0]));
  EXPECT_EQ(reads.owned_slots(), 0u);
}

// A page whose slot is given up and replaced all the time, and readers that follow the protocol. No slot may be freed
// while a reader that found it at the page reads it, and each is freed exactly once.
TEST(slot_reads, no_slot_is_freed_under_a_read_and_each_is_freed_once) {
  constexpr unsigned readers = 3;
  constexpr std::uint64_t slots = 30'000;
  slot_reads reads;
  std::vector<std::atomic<unsigned>> freed(slots + 1);
  std::atomic<std::uint64_t> place{0};
  std::atomic<unsigned> wrong{0};
  std::atomic<unsigned> read_count{0};
  std::vector<std::thread> running;
  for (unsigned self = 0; self < readers; ++self) {
    running.emplace_back([&] {
      slot_reads::entry mine;
      std::uint64_t slot = 0;
      while ((slot = place.load()) < slots) {
        reads.begin(mine, slot);
        if (place.load() == slot) {
          wrong += freed[slot].load();
          for (int i = 0; i < 20; ++i) cpu_relax();
          wrong += freed[slot].load();
          ++read_count;
        }
        if (reads.end(mine)) ++freed[slot];
      }
    });
  }
  for (std::uint64_t next = 1; next <= slots; ++next) {
    const std::uint64_t before = place.exchange(next);
    if (!reads.leave_to_readers(before)) ++freed[before];
    if (next % 512 == 0) std::this_thread::yield();
  }
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(wrong, 0u);
  for (std::uint64_t slot = 0; slot < slots; ++slot) ASSERT_EQ(freed[slot].load(), 1u) << slot;
  EXPECT_EQ(reads.owned_slots(), 0u);
}

}  // namespace
}  // namespace far::engine
