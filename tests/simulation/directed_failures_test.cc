// Single situations in the simulated world in which the far tier fails, one thread, step by step.
#include <cerrno>

#include "directed.h"

namespace far::simulation {
namespace {

TEST_F(directed, a_full_far_tier_loses_nothing_and_eviction_resumes) {
  const page_range first{0, 512};
  const page_range second{512, 1024};
  ASSERT_TRUE(engine_->ranges().allocate_guarded(first));
  ASSERT_TRUE(engine_->ranges().allocate_guarded(second));
  far_.faults().set_slot_limit(100);
  write(first);
  write(second);
  engine_->validate();
  EXPECT_GT(engine_->snapshot().over_budget_pages, 500u) << "a byte kept is worth more than a limit kept";
  check(first);
  check(second);

  far_.faults().set_slot_limit(slots);
  clock_.advance_to(clock_.now_ns() + 1'000'000'000);
  for (int rounds = 0; rounds < 1000 && engine_->state_for_tests().local.below_high(); ++rounds) {
    static_cast<void>(engine_->eviction().reclaim_in_background());
    clock_.advance_to(clock_.now_ns() + 1000);
  }
  EXPECT_FALSE(engine_->state_for_tests().local.below_high());
  check(first);
  check(second);
}

TEST_F(directed, pages_come_back_when_writing_them_fails) {
  const page_range range{0, 100};
  ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
  write(range);
  far_.faults().set_failing_writes_per_million(1'000'000);
  engine_->eviction().evict(range);
  EXPECT_EQ(count_in(range, state::resident), range.count);
  EXPECT_EQ(engine_->snapshot().far_bytes, 0u);
  EXPECT_GT(engine_->snapshot().backend_errors, 0u);
  check(range);
}

// Troubles that take seconds: a path that fails over, a device that resets, a server that starts again.
TEST_F(directed, a_read_that_fails_for_seconds_is_tried_again_until_it_succeeds) {
  const page_range range{0, 1};
  store(range);
  far_.faults().set_failing_reads_per_million(1'000'000);
  const std::uint64_t since_ns = clock_.now_ns();
  while (clock_.now_ns() - since_ns < 20'000'000'000) {
    ASSERT_NE(miss(0, false), outcome::lost);
    static_cast<void>(engine_->transfers().help());
    clock_.advance_to(clock_.now_ns() + 10'000'000);
  }
  EXPECT_EQ(state_of(0), state::fetching);
  EXPECT_LT(far_.failed_reads(word_of(0).place()), 40u) << "the pauses grow";
  far_.faults().set_failing_reads_per_million(0);
  EXPECT_EQ(resolve(0, false, 1'000'000), outcome::resolved);
  check(range);
}

TEST_F(directed, others_are_served_while_a_failed_read_rests) {
  const page_range range{0, 2};
  store(range);
  far_.faults().set_failing_reads_per_million(1'000'000);
  EXPECT_EQ(miss(0, false), outcome::in_flight);
  EXPECT_FALSE(fetcher_->only_rests());
  static_cast<void>(engine_->transfers().help());
  EXPECT_TRUE(fetcher_->only_rests());
  far_.faults().set_failing_reads_per_million(0);
  EXPECT_EQ(resolve(1, false, 0), outcome::resolved) << "no time has passed";
  EXPECT_EQ(state_of(0), state::fetching);
  check(range);
}

TEST_F(directed, a_read_that_fails_for_half_a_minute_loses_the_page_until_it_is_discarded) {
  const page_range range{0, 1};
  store(range);
  far_.faults().set_failing_reads_per_million(1'000'000);
  const std::uint64_t since_ns = clock_.now_ns();
  EXPECT_EQ(resolve(0, false, 10'000'000), outcome::lost);
  EXPECT_GE(clock_.now_ns() - since_ns, 30'000'000'000u);
  EXPECT_LE(clock_.now_ns() - since_ns, 32'000'000'000u);
  far_.faults().set_failing_reads_per_million(0);
  EXPECT_EQ(resolve(0, false), outcome::lost) << "never stale or zero bytes";
  engine_->ranges().discard(range);
  EXPECT_EQ(resolve(0, false), outcome::resolved);
  expected_.forget(range);
  check(range);
  EXPECT_EQ(engine_->snapshot().far_bytes, 0u) << "the slot is free";
}

TEST_F(directed, a_tier_that_says_for_how_long_is_asked_that_long) {
  const page_range range{0, 2};
  store(range);
  far_.faults().set_error_code(ETIMEDOUT);
  far_.faults().set_read_patience_ns(90'000'000'000);
  far_.faults().set_failing_reads_per_million(1'000'000);
  const std::uint64_t since_ns = clock_.now_ns();
  EXPECT_EQ(resolve(0, false, 10'000'000), outcome::lost);
  EXPECT_GE(clock_.now_ns() - since_ns, 90'000'000'000u);
  EXPECT_EQ(miss(1, false), outcome::in_flight);
  for (const std::uint64_t end_ns = clock_.now_ns() + 60'000'000'000; clock_.now_ns() < end_ns;) {
    clock_.advance_to(clock_.now_ns() + 100'000'000);
    static_cast<void>(engine_->transfers().help());
  }
  far_.faults().set_failing_reads_per_million(0);
  EXPECT_EQ(resolve(1, false, 10'000'000), outcome::resolved) << "an outage of a minute";
  check({1, 1});
}

// Somebody who needs one page after the other does not wait as long for each of them.
TEST_F(directed, patience_is_of_the_tier_and_not_of_each_page) {
  const page_range range{0, 4};
  store(range);
  far_.faults().set_error_code(ETIMEDOUT);
  far_.faults().set_read_patience_ns(90'000'000'000);
  far_.faults().set_failing_reads_per_million(1'000'000);
  const std::uint64_t since_ns = clock_.now_ns();
  far_.faults().set_away_since_ns(since_ns);
  EXPECT_EQ(resolve(0, false, 10'000'000), outcome::lost);
  EXPECT_GE(clock_.now_ns() - since_ns, 90'000'000'000u);
  const std::uint64_t over_ns = clock_.now_ns();
  EXPECT_EQ(resolve(1, false, 10'000'000), outcome::lost);
  EXPECT_LT(clock_.now_ns() - over_ns, 100'000'000u);
  far_.faults().set_failing_reads_per_million(0);
  EXPECT_EQ(resolve(2, false), outcome::resolved) << "each is asked for once";
  check({2, 1});
  write({2, 2});  // it had come along
  engine_->eviction().evict({2, 2});
  far_.faults().set_away_since_ns(clock_.now_ns());
  far_.faults().set_failing_reads_per_million(1'000'000);
  const std::uint64_t again_ns = clock_.now_ns();
  EXPECT_EQ(resolve(3, false, 10'000'000), outcome::lost);
  EXPECT_GE(clock_.now_ns() - again_ns, 90'000'000'000u) << "another outage";
}

TEST_F(directed, a_failure_after_an_outage_is_tried_as_long_as_any_and_no_longer) {
  const page_range range{0, 1};
  store(range);
  far_.faults().set_error_code(ETIMEDOUT);
  far_.faults().set_read_patience_ns(3'600'000'000'000);
  far_.faults().set_failing_reads_per_million(1'000'000);
  EXPECT_EQ(miss(0, false), outcome::in_flight);
  for (int tenths = 0; tenths < 600; ++tenths) {
    clock_.advance_to(clock_.now_ns() + 100'000'000);
    static_cast<void>(engine_->transfers().help());
  }
  far_.faults().set_error_code(EIO);
  const std::uint64_t since_ns = clock_.now_ns();
  EXPECT_EQ(resolve(0, false, 10'000'000), outcome::lost);
  EXPECT_GE(clock_.now_ns() - since_ns, 29'000'000'000u);
  EXPECT_LE(clock_.now_ns() - since_ns, 33'000'000'000u);
}

TEST_F(directed, a_tier_that_has_forgotten_a_page_for_good_is_not_asked_for_long) {
  const page_range range{0, 1};
  store(range);
  far_.faults().set_error_code(ESTALE);
  far_.faults().set_failing_reads_per_million(1'000'000);
  const std::uint64_t since_ns = clock_.now_ns();
  EXPECT_EQ(resolve(0, false, 100'000), outcome::lost);
  EXPECT_LT(clock_.now_ns() - since_ns, 10'000'000u);
  far_.faults().set_failing_reads_per_million(0);
}

// A bit that flips, zeros, the bytes of another slot: right bytes come in, or none.
TEST_F(directed, wrong_bytes_are_read_again_and_never_installed) {
  const page_range range{0, 300};
  store(range);
  far_.faults().set_lying_reads_per_million(400'000);
  for (page_id page = range.first; page < range.end(); ++page) {
    ASSERT_EQ(resolve(page, page % 2 == 0, 100'000), outcome::resolved) << page;
  }
  check(range);
  EXPECT_GT(far_.lies(), 15u);
  EXPECT_GE(engine_->snapshot().backend_errors, far_.lies()) << "each was noticed";
  far_.faults().set_lying_reads_per_million(0);
}

TEST_F(directed, a_tier_that_goes_on_returning_wrong_bytes_loses_the_page) {
  const page_range range{0, 3};
  store(range);
  far_.faults().set_lying_reads_per_million(1'000'000);
  for (page_id page = range.first; page < range.end(); ++page) {
    EXPECT_EQ(resolve(page, false, 10'000'000), outcome::lost);
  }
  EXPECT_LT(clock_.now_ns(), 15'000'000'000u);
}

// The behaviour of a page cache that cannot write to its disk: the write has succeeded, and what was there before comes
// back.
TEST_F(directed, a_write_that_never_arrived_is_noticed_when_its_page_is_read) {
  const page_range range{0, 1};
  store(range);
  write(range);  // its slot is free now, and the next one to be taken
  far_.faults().set_lying_writes_per_million(1'000'000);
  engine_->eviction().evict(range);
  far_.faults().set_lying_writes_per_million(0);
  ASSERT_EQ(far_.lies(), 1u);
  ASSERT_EQ(state_of(0), state::remote);
  EXPECT_EQ(resolve(0, false, 10'000'000), outcome::lost);
}

TEST_F(directed_direct, wrong_bytes_are_noticed_where_they_are_a_memory_access_away) {
  const page_range range{0, 40};
  store(range);
  const auto slot = engine_->state_for_tests().pages.load(3).place();
  auto* const bytes = const_cast<std::byte*>(far_.direct(slot));
  bytes[1234] ^= std::byte{4};
  check({0, 3});  // reads ahead, over the page
  EXPECT_EQ(resolve(3, false, 10'000'000), outcome::lost);
  check({4, 36});
}

TEST_F(directed_direct, bytes_that_are_right_again_come_in) {
  const page_range range{0, 1};
  store(range);
  const auto slot = engine_->state_for_tests().pages.load(0).place();
  auto* const bytes = const_cast<std::byte*>(far_.direct(slot));
  bytes[0] ^= std::byte{1};
  EXPECT_EQ(miss(0, false), outcome::in_flight);
  static_cast<void>(engine_->transfers().help());
  EXPECT_EQ(state_of(0), state::fetching);
  bytes[0] ^= std::byte{1};
  check(range);
}

}  // namespace
}  // namespace far::simulation
