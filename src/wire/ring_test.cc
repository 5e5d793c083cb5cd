#include "wire/ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "base/backoff.h"

namespace far::wire {
namespace {

constexpr std::uint32_t length = 8;

struct memory {
  shared_word put{};
  shared_word taken{};
  shared_word dozing{};
  std::array<shared_entry, length> entries{};

  ring_place place() { return {&put, &taken, &dozing, entries.data(), length}; }
};

ring_entry entry(std::uint64_t number) {
  ring_entry entry;
  for (std::uint64_t i = 0; i < entry.size(); ++i) entry[i] = number * 0x9e3779b97f4a7c15u + i;
  return entry;
}

TEST(shm_ring, entries_come_out_whole_and_in_order) {
  memory shared;
  ring_producer in(shared.place());
  ring_consumer out(shared.place());
  ring_entry got;
  EXPECT_FALSE(out.take(got));
  std::uint64_t next = 0;
  for (std::uint64_t round = 0; round < 50; ++round) {
    const std::uint64_t count = 1 + round % length;
    ASSERT_EQ(in.room(), length);
    for (std::uint64_t i = 0; i < count; ++i) in.put(entry(next + i));
    EXPECT_FALSE(out.take(got)) << "not shown yet";
    EXPECT_FALSE(in.publish());
    EXPECT_EQ(in.room(), length - count);
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(out.take(got));
      EXPECT_EQ(got, entry(next + i));
    }
    EXPECT_FALSE(out.take(got));
    EXPECT_EQ(in.room(), length - count) << "the places are not given back yet";
    out.release();
    next += count;
  }
}

TEST(shm_ring, a_consumer_that_dozes_is_woken_once) {
  memory shared;
  ring_producer in(shared.place());
  ring_consumer out(shared.place());
  EXPECT_TRUE(out.doze());
  in.put(entry(1));
  EXPECT_TRUE(in.publish());
  in.put(entry(2));
  EXPECT_FALSE(in.publish()) << "it has been told";
  EXPECT_FALSE(out.doze()) << "there is something to take";
  out.wake();
  in.put(entry(3));
  EXPECT_FALSE(in.publish()) << "it is awake";
}

TEST(shm_ring, a_position_that_cannot_be_breaks_the_consumer_for_good) {
  for (const std::uint32_t wrong : {length + 1, 0x80000000u, 0xffffffffu}) {
    memory shared;
    ring_producer in(shared.place());
    ring_consumer out(shared.place());
    ring_entry got;
    shared.put.value = wrong;
    EXPECT_FALSE(out.take(got));
    EXPECT_TRUE(out.broken());
    shared.put.value = 1;
    EXPECT_FALSE(out.take(got));
    EXPECT_FALSE(out.doze());
  }
}

TEST(shm_ring, a_position_that_cannot_be_breaks_the_producer_for_good) {
  for (const std::uint32_t wrong : {1u, 0x80000000u, 0u - length - 1}) {
    memory shared;
    ring_producer in(shared.place());
    shared.taken.value = wrong;
    EXPECT_EQ(in.room(), 0u);
    EXPECT_TRUE(in.broken());
    shared.taken.value = 0;
    EXPECT_EQ(in.room(), 0u);
  }
}

TEST(shm_ring, what_the_other_side_writes_over_our_words_changes_nothing) {
  memory shared;
  ring_producer in(shared.place());
  ring_consumer out(shared.place());
  in.put(entry(1));
  EXPECT_FALSE(in.publish());
  shared.put.value = 2;  // as if there were one more entry: its place is read as it is
  ring_entry got;
  EXPECT_TRUE(out.take(got));
  EXPECT_EQ(got, entry(1));
  EXPECT_TRUE(out.take(got));
  EXPECT_FALSE(out.take(got));
  in.put(entry(2));
  EXPECT_FALSE(in.publish());
  EXPECT_EQ(shared.put.value, 2u) << "its own count, not what it found";
}

// A queue as deep as can be between two threads, with sleeping: ThreadSanitizer watches it, and every entry is checked.
TEST(shm_ring, two_threads_pass_entries_and_wake_each_other) {
  constexpr std::uint64_t entries = 60'000;
  const auto shared = std::make_unique<memory>();
  std::atomic<std::uint32_t> bell{0};
  std::atomic<std::uint64_t> sleeps{0};
  std::thread taker([&] {
    ring_consumer out(shared->place());
    ring_entry got;
    for (std::uint64_t next = 0; next < entries;) {
      if (out.take(got)) {
        ASSERT_EQ(got, entry(next));
        ++next;
        if (next % 3 == 0 || next == entries) out.release();
        continue;
      }
      out.release();
      const std::uint32_t heard = bell.load();
      if (out.doze()) {
        ++sleeps;
        for (backoff waiting; bell.load() == heard;) waiting.pause();
      }
      out.wake();
    }
  });
  ring_producer in(shared->place());
  for (std::uint64_t next = 0; next < entries;) {
    std::uint32_t room = in.room();
    if (room == 0) {
      cpu_relax();
      continue;
    }
    for (; room > 0 && next < entries; --room) in.put(entry(next++));
    if (in.publish()) bell.fetch_add(1);
    if (next % 4096 < length) sched_yield();
  }
  taker.join();
  EXPECT_FALSE(in.broken());
  EXPECT_GT(sleeps.load(), 0u);
}

}  // namespace
}  // namespace far::wire
