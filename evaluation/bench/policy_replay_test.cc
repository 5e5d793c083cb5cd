#include "policy_replay.h"

#include <gtest/gtest.h>

#include "page_streams.h"

namespace far::bench {
namespace {

TEST(policy_replay, counts_by_hand) {
  const page_stream stream{0, 1, 2, 0, 3, 0, 1, 2};
  // LRU with 3 frames: 0 1 2 miss; 3 takes the place of 1, 1 that of 2, 2 that of 3.
  EXPECT_EQ(misses_under_lru(stream, 3), 6u);
  // First in, first out: 3 takes the place of 0, 0 that of 1, 1 that of 2, 2 that of 3.
  EXPECT_EQ(misses_under("fifo", stream, 3).value(), 7u);
  // The optimum lets 2 go, which is needed last, and has one frame too few but once.
  EXPECT_EQ(least_misses(stream, 3), 5u);
}

TEST(policy_replay, what_fits_is_missed_once_under_all) {
  const page_stream stream = any_pages(100, 5000);
  EXPECT_EQ(misses_under_lru(stream, 100), 100u);
  EXPECT_EQ(least_misses(stream, 100), 100u);
  for (const char* const policy : {"2q", "second-chance", "fifo", "lru", "priority"}) {
    EXPECT_EQ(misses_under(policy, stream, 100).value(), 100u) << policy;
  }
}

TEST(policy_replay, an_unknown_policy_is_an_error) {
  EXPECT_FALSE(misses_under("oracle", {0, 1}, 1).ok());
}

TEST(policy_replay, nobody_beats_the_optimum) {
  const page_stream stream = popular_pages(500, 20'000, 0.8);
  for (const std::uint32_t frames : {10u, 100u, 400u}) {
    const std::uint64_t least = least_misses(stream, frames);
    EXPECT_LE(least, misses_under_lru(stream, frames));
    for (const char* const policy : {"2q", "second-chance", "fifo"}) {
      EXPECT_LE(least, misses_under(policy, stream, frames).value()) << policy;
    }
  }
}

// The default policy does without accessed bits what LRU does with them, or nearly (docs/decisions/0028-two-queues.md).
TEST(two_queues, miss_little_more_than_lru) {
  constexpr std::uint32_t pages = 8192;
  constexpr std::size_t accesses = 800'000;  // the share of newcomers is learned
  const page_stream streams[] = {popular_pages(pages, accesses, 0.99), popular_pages_beside_a_walk(pages, accesses),
                                 shifting_popularity(pages, accesses), any_pages(pages, accesses / 4),
                                 graph_searches(pages * 4)};
  for (const page_stream& stream : streams) {
    for (const std::uint32_t percent : {10u, 25u, 50u}) {
      const std::uint32_t frames = distinct_pages(stream) * percent / 100;
      const auto two_queues = static_cast<double>(misses_under("2q", stream, frames).value());
      EXPECT_LE(two_queues / static_cast<double>(misses_under_lru(stream, frames)), 1.1)
          << "stream " << &stream - streams << ", " << percent << "%";
    }
  }
}

}  // namespace
}  // namespace far::bench
