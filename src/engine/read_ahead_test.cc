#include "engine/read_ahead.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

#include "tests/support/page_states.h"

namespace far::engine {
namespace {

constexpr std::size_t largest = 64;

struct totals {
  std::size_t misses = 0;
  std::size_t prefetched = 0;
  std::size_t used = 0;
  std::size_t unused = 0;
};

// Plays accesses against a table: an access misses unless an earlier window covered it.
class player {
 public:
  void access(page_id page) {
    if (fetched_.contains(page)) return;
    prefetch_feedback feedback;
    const window ahead = table_.observe(pages_, page, largest, &feedback);
    table_.note_fetched(ahead, ahead.count);
    ++totals_.misses;
    totals_.prefetched += ahead.count;
    totals_.used += feedback.used_pages;
    totals_.unused += feedback.unused_pages;
    fetched_.insert(page);
    for (std::size_t i = 1; i <= ahead.count; ++i) {
      fetched_.insert(page + static_cast<page_id>(ahead.stride * static_cast<std::int64_t>(i)));
    }
  }
  [[nodiscard]] const totals& result() const { return totals_; }

 private:
  residency pages_{12'000'000};
  read_ahead_state table_;
  std::set<page_id> fetched_;
  totals totals_;
};

TEST(stream, a_scan_ramps_up_to_the_largest_window) {
  player scan;
  for (page_id page = 1000; page < 11000; ++page) scan.access(page);
  // 4, 8, 16, 32, then 64 at a time: about 10000 / 65 misses.
  EXPECT_LT(scan.result().misses, 170u);
  EXPECT_EQ(scan.result().unused, 0u);
  EXPECT_GT(scan.result().used, 9700u);
}

TEST(stream, backward_and_strided_scans_are_streams_too) {
  for (const std::int64_t stride : {-1, 3, -7, 64}) {
    player scan;
    for (std::int64_t step = 0; step < 5000; ++step) scan.access(static_cast<page_id>(1'000'000 + step * stride));
    EXPECT_LT(scan.result().misses, 100u) << stride;
    EXPECT_GT(scan.result().used, 4800u) << stride;
  }
}

TEST(stream, eight_interleaved_scans_are_told_apart) {
  player scan;
  for (page_id step = 0; step < 2000; ++step) {
    for (page_id column = 0; column < 8; ++column) scan.access(column * 1'000'000 + step);
  }
  EXPECT_LT(scan.result().misses, 8 * 45u);
  EXPECT_EQ(scan.result().unused, 0u);
}

TEST(stream, random_accesses_fetch_next_to_nothing) {
  player scan;
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) scan.access(random() % 1'000'000);
  EXPECT_LT(scan.result().prefetched, scan.result().misses / 100);
}

// A program that writes all over an array, a fourth of which is local, beside a scan.
TEST(stream, random_misses_do_not_keep_a_stream_going) {
  constexpr page_id all = 8192;
  residency pages(all + 64);
  for (page_id page = 0; page < all; ++page) put(pages, page, state::remote, 0);
  read_ahead_state table;
  std::deque<page_id> local;
  std::size_t misses = 0;
  std::size_t prefetched = 0;
  const auto bring = [&](page_id page) {
    if (page >= all || pages.load(page).where() != state::remote) return;
    put(pages, page, state::resident, 0);
    local.push_back(page);
    if (local.size() <= all / 4) return;
    put(pages, local.front(), state::remote, 0);
    local.pop_front();
  };
  std::mt19937_64 random(9);
  for (int i = 0; i < 50'000; ++i) {
    const page_id page = random() % all;
    if (pages.load(page).where() == state::resident) continue;
    prefetch_feedback feedback;
    const window ahead = table.observe(pages, page, largest, &feedback);
    ++misses;
    prefetched += ahead.count;
    bring(page);
    for (std::size_t step = 1; step <= ahead.count; ++step) {
      bring(page + static_cast<page_id>(ahead.stride * static_cast<std::int64_t>(step)));
    }
  }
  EXPECT_LT(prefetched, misses / 10);
}

TEST(stream, a_scan_passes_over_pages_that_are_here) {
  residency pages(1000);
  for (page_id page = 100; page < 200; ++page) put(pages, page, state::remote, 0);
  read_ahead_state table;
  prefetch_feedback feedback;
  static_cast<void>(table.observe(pages, 100, largest, &feedback));
  const window first = table.observe(pages, 101, largest, &feedback);
  table.note_fetched(first, first.count);
  ASSERT_GT(first.count, 0u);
  const page_id next = 102 + first.count;
  put(pages, next, state::resident, 0);
  EXPECT_GT(table.observe(pages, next + 1, largest, &feedback).count, first.count);
  EXPECT_EQ(feedback.used_pages, first.count);
}

TEST(stream, a_scan_passes_over_pages_whose_objects_come_one_by_one) {
  residency pages(1000);
  for (page_id page = 100; page < 200; ++page) put(pages, page, state::remote, 0);
  read_ahead_state table;
  prefetch_feedback feedback;
  static_cast<void>(table.observe(pages, 100, largest, &feedback));
  const window first = table.observe(pages, 101, largest, &feedback);
  table.note_fetched(first, first.count);
  ASSERT_GT(first.count, 0u);
  const page_id next = 102 + first.count;
  pages.update(next, [](page_word word) { return word.with_object_path(true); });
  EXPECT_GT(table.observe(pages, next + 1, largest, &feedback).count, first.count);
  EXPECT_EQ(feedback.used_pages, first.count);
}

TEST(stream, short_bursts_shrink_the_window) {
  // Two neighbours, then somewhere else: every prefetch is wrong, and soon nothing is prefetched.
  player bursts;
  std::mt19937_64 random(8);
  for (int i = 0; i < 2000; ++i) {
    const page_id page = random() % 10'000'000;
    bursts.access(page);
    bursts.access(page + 1);
  }
  EXPECT_LT(bursts.result().prefetched, 300u);
}

TEST(neighbours, pages_filled_before_end_at_the_first_that_is_not) {
  residency pages(200);
  for (page_id page = 10; page < 50; ++page) put(pages, page, page % 2 == 0 ? state::resident : state::remote, 0);
  EXPECT_EQ(filled_before(pages, 50, 64), 40u);
  EXPECT_EQ(filled_before(pages, 50, 16), 16u);
  EXPECT_EQ(filled_before(pages, 12, 64), 2u);
  EXPECT_EQ(filled_before(pages, 10, 64), 0u);
  EXPECT_EQ(filled_before(pages, 0, 64), 0u);
  for (page_id page = 0; page < 3; ++page) put(pages, page, state::resident, 0);
  EXPECT_EQ(filled_before(pages, 3, 64), 3u) << "the heap begins there";
}

TEST(neighbours, pages_filled_after_end_at_the_first_that_is_not) {
  residency pages(60);
  for (page_id page = 10; page < 50; ++page) put(pages, page, page % 2 == 0 ? state::resident : state::remote, 0);
  EXPECT_EQ(filled_after(pages, 9, 64), 40u);
  EXPECT_EQ(filled_after(pages, 9, 16), 16u);
  EXPECT_EQ(filled_after(pages, 47, 64), 2u);
  EXPECT_EQ(filled_after(pages, 49, 64), 0u);
  for (page_id page = 57; page < 60; ++page) put(pages, page, state::resident, 0);
  EXPECT_EQ(filled_after(pages, 56, 64), 3u) << "the heap ends there";
  EXPECT_EQ(filled_after(pages, 59, 64), 0u);
}

TEST(neighbours, pages_returned_before_have_left_in_the_same_epoch) {
  residency pages(100);
  for (page_id page = 20; page < 30; ++page) put(pages, page, state::resident, page < 25 ? 3 : 4);
  put(pages, 30, state::remote, 4);
  EXPECT_EQ(returned_before(pages, 30, 32), 5u);
  EXPECT_EQ(returned_before(pages, 30, 2), 2u);
  put(pages, 40, state::remote, 4);
  EXPECT_EQ(returned_before(pages, 40, 32), 0u) << "an Untouched page lies before it";
  put(pages, 29, state::fetching, 4);
  EXPECT_EQ(returned_before(pages, 30, 32), 5u) << "a page on its way belongs to the walk";
  put(pages, 29, state::remote, 5);
  put(pages, 29, state::fetching, 5);
  EXPECT_EQ(returned_before(pages, 30, 32), 0u) << "one that left in another epoch does not";
  put(pages, 29, state::resident, 4);
  pages.update(29, [](page_word word) { return word.with_fetched(false); });
  EXPECT_EQ(returned_before(pages, 30, 32), 0u) << "it was made here, not fetched";
}

}  // namespace
}  // namespace far::engine
