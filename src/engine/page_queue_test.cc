#include "engine/page_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace far::engine {
namespace {

TEST(page_queue, pages_leave_at_the_front_in_order) {
  page_queue queue;
  EXPECT_TRUE(queue.empty());
  queue.push_back(2);
  queue.push_back(3);
  queue.push_front(1);
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_EQ(queue.pop_front(), 1u);
  EXPECT_EQ(queue.pop_front(), 2u);
  EXPECT_EQ(queue.pop_front(), 3u);
  EXPECT_TRUE(queue.empty());
}

// Long enough to cross the ends of chunks in both directions, against a queue of the standard library.
TEST(page_queue, behaves_like_a_deque) {
  std::mt19937_64 random(1);
  page_queue queue;
  std::deque<platform::page_id> expected;
  // Grows, hovers, shrinks to nothing, and again.
  for (const unsigned pop_per_mille : {200u, 500u, 900u, 300u, 1000u}) {
    for (int i = 0; i < 20'000; ++i) {
      const platform::page_id page = random();
      if (random() % 1000 < pop_per_mille) {
        if (expected.empty()) continue;
        ASSERT_EQ(queue.pop_front(), expected.front());
        expected.pop_front();
      } else if (random() % 3 == 0) {
        queue.push_front(page);
        expected.push_front(page);
      } else {
        queue.push_back(page);
        expected.push_back(page);
      }
      ASSERT_EQ(queue.size(), expected.size());
    }
  }
  while (!expected.empty()) {
    ASSERT_EQ(queue.pop_front(), expected.front());
    expected.pop_front();
  }
  EXPECT_TRUE(queue.empty());
}

TEST(page_queue, hovering_at_the_end_of_a_chunk_works) {
  page_queue queue;
  for (platform::page_id page = 0; page < 1020; ++page) queue.push_back(page);
  for (platform::page_id round = 0; round < 100; ++round) {
    queue.push_back(1020 + round);
    EXPECT_EQ(queue.pop_front(), round);
  }
  EXPECT_EQ(queue.size(), 1020u);
}

TEST(page_queue, takes_another_queue_to_its_front) {
  for (const platform::page_id count : {1, 1019, 1020, 1021, 5000}) {
    for (const platform::page_id more : {0, 1, 1020, 3000}) {
      page_queue front;
      page_queue back;
      for (platform::page_id page = 0; page < count; ++page) front.push_back(page);
      for (platform::page_id page = 0; page < more; ++page) back.push_back(count + page);
      back.take_to_front(front);
      EXPECT_TRUE(front.empty());
      ASSERT_EQ(back.size(), count + more);
      back.push_back(count + more);
      front.push_back(7);
      EXPECT_EQ(front.pop_front(), 7u);
      for (platform::page_id page = 0; page <= count + more; ++page) ASSERT_EQ(back.pop_front(), page);
      back.take_to_front(front);
      EXPECT_TRUE(back.empty());
    }
  }
}

TEST(page_queue_death_test, an_empty_queue_has_no_front) {
  page_queue queue;
  EXPECT_DEATH(static_cast<void>(queue.pop_front()), "empty queue");
}

}  // namespace
}  // namespace far::engine
