// Single situations in the simulated world, one thread, step by step: what random runs meet too rarely to be relied on,
// and what the engine's counters must say.
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <mutex>

#include "engine/engine.h"
#include "model.h"
#include "simulated_backend.h"
#include "simulated_kernel.h"

namespace far::simulation {
namespace {

using engine::outcome;
using engine::state;

constexpr std::uint64_t heap_pages = 2048;
constexpr std::uint64_t slots = 8192;

class directed : public testing::Test {
 protected:
  explicit directed(std::uint64_t delay_ns = 0, bool is_direct = false)
      : far_(threads_, random_, clock_, tier(delay_ns, is_direct)) {
    engine_ = engine::engine::create(kernel_, far_, clock_, {.heap_pages = heap_pages, .budget_pages = 600}).value();
    fetcher_ = engine_->transfers().add_fetcher().value();
  }
  ~directed() override { settle(); }

  static far_tier tier(std::uint64_t delay_ns, bool is_direct) {
    far_tier chosen;
    chosen.is_direct = is_direct;
    chosen.slots = slots;
    chosen.maximum_delay_ns = delay_ns;
    return chosen;
  }

  outcome miss(page_id page, bool write) {
    const far::lock_guard guard(fetcher_->lock);
    return engine_->misses().handle(*fetcher_, streams_, page, write);
  }
  // Makes the access possible, however long it takes. `step_ns`: from one look to the next.
  outcome resolve(page_id page, bool write, std::uint64_t step_ns = 1000) {
    for (int attempts = 0; attempts < 10'000; ++attempts) {
      if (kernel_.touch(page, write) == simulated_kernel::fault::none) return outcome::resolved;
      const outcome reached = miss(page, write);
      if (reached == outcome::lost) return reached;
      if (reached == outcome::no_budget) static_cast<void>(engine_->eviction().reclaim());
      static_cast<void>(engine_->transfers().help());
      clock_.advance_to(clock_.now_ns() + step_ns);
    }
    ADD_FAILURE() << "page " << page << " never comes";
    return outcome::busy;
  }
  void write(page_range range) {
    for (page_id page = range.first; page < range.end(); ++page) {
      ASSERT_EQ(resolve(page, true), outcome::resolved);
      for (std::size_t part = 0; part < model::parts_a_page; ++part) expected_.write(page, part, kernel_.bytes(page));
    }
  }
  // Allocates and writes the range, and evicts it.
  void store(page_range range) {
    ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
    write(range);
    engine_->eviction().evict(range);
  }
  void check(page_range range) {
    for (page_id page = range.first; page < range.end(); ++page) {
      ASSERT_EQ(resolve(page, false), outcome::resolved);
      for (std::size_t part = 0; part < model::parts_a_page; ++part) expected_.check(page, part, kernel_.bytes(page));
    }
  }
  void settle() {
    while (engine_->transfers().under_way()) {
      static_cast<void>(engine_->transfers().help());
      clock_.advance_to(clock_.now_ns() + 100'000);
    }
    engine_->validate();
  }
  [[nodiscard]] state state_of(page_id page) const { return engine_->state_for_tests().pages.load(page).where(); }
  [[nodiscard]] std::uint64_t count_in(page_range range, state wanted) const {
    std::uint64_t count = 0;
    for (page_id page = range.first; page < range.end(); ++page) count += state_of(page) == wanted;
    return count;
  }

  // Half of a region has come back; a write to another page of it brings the rest, but for a sample.
  void write_in_a_region_in_use() {
    auto eager = engine::engine::create(kernel_, far_, clock_,
                                        {.heap_pages = heap_pages,
                                         .budget_pages = 600,
                                         .policy = "second-chance",  // it leaves the marks of use for us to see
                                         .regions_come_whole = true});
    engine_ = std::move(eager).value();
    fetcher_ = engine_->transfers().add_fetcher().value();
    const page_range range{0, 64};
    ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
    write(range);
    engine_->eviction().evict(range);
    settle();
    const page_range region{16, 16};
    const page_id written = 21;
    for (page_id page = region.first; page < region.end(); page += 2) {
      streams_ = {};  // no walk
      check({page, 1});
    }
    ASSERT_EQ(count_in(region, state::resident), 8u);
    streams_ = {};
    write({written, 1});
    settle();
    EXPECT_EQ(count_in(range, state::resident), 15u);
    EXPECT_EQ(engine_->snapshot().around_pages, 6u);
    EXPECT_EQ(engine_->snapshot().sampled_pages, 0u) << "it may still be missed";
    for (page_id page = region.first; page < region.end(); ++page) {
      const engine::page_word word = engine_->state_for_tests().pages.load(page);
      EXPECT_EQ(word.has_place(), page != written) << page << ": only what is written to loses its slot";
      EXPECT_EQ(word.accessed(), page % 2 == 0 || page == written) << page << ": only what is missed was used";
    }
    check(region);
    EXPECT_EQ(engine_->snapshot().sampled_pages, 1u);
    EXPECT_EQ(engine_->snapshot().wanted_samples, 1u);
    check(range);
    engine_->ranges().release(range);
    settle();
  }

  random_source random_{1};
  simulated_clock clock_;
  scheduler threads_{random_, clock_, {}};
  simulated_kernel kernel_{threads_, random_, heap_pages};
  simulated_backend far_;
  model expected_{heap_pages};
  std::unique_ptr<engine::engine> engine_;
  engine::fetcher* fetcher_ = nullptr;
  engine::read_ahead_state streams_;
};

class directed_slow : public directed {
 protected:
  directed_slow() : directed(1'000'000) {}
};

TEST_F(directed, memory_that_fits_is_the_kernels_alone) {
  const page_range range{0, 300};
  ASSERT_TRUE(engine_->ranges().allocate(range));
  write(range);
  EXPECT_EQ(engine_->snapshot().zero_fills, 0u);
  EXPECT_EQ(count_in(range, state::untouched), range.count);
  EXPECT_EQ(engine_->snapshot().local_bytes, range.count * page_bytes);
  engine_->validate();
}

TEST_F(directed, what_comes_back_unchanged_is_not_written_again) {
  const page_range range{0, 200};
  store(range);
  EXPECT_EQ(count_in(range, state::remote), range.count);
  check(range);
  settle();
  const engine::statistics before = engine_->snapshot();
  EXPECT_EQ(before.written_pages, range.count);
  engine_->eviction().evict(range);
  EXPECT_EQ(count_in(range, state::remote), range.count);
  const engine::statistics after = engine_->snapshot();
  EXPECT_EQ(after.written_pages, range.count);
  EXPECT_EQ(after.clean_evictions, before.clean_evictions + range.count);
  check(range);
}

TEST_F(directed, a_page_that_was_only_read_holds_no_slot) {
  const page_range range{0, 64};
  ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
  check(range);
  engine_->eviction().evict(range);
  EXPECT_EQ(count_in(range, state::untouched), range.count);
  EXPECT_EQ(engine_->snapshot().far_bytes, 0u);
  EXPECT_EQ(engine_->snapshot().local_bytes, 0u);
}

// By a system call of the program that nobody sees, as a raw madvise(MADV_DONTNEED).
TEST_F(directed, a_page_that_was_dropped_past_the_engine_is_untouched_once_it_should_leave) {
  const page_range range{0, 4};
  ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
  write(range);
  ASSERT_TRUE(kernel_.drop_behind(1));
  expected_.drop_behind(1);
  engine_->eviction().evict(range);
  settle();
  EXPECT_EQ(state_of(1), state::untouched);
  EXPECT_EQ(count_in(range, state::remote), 3u);
  EXPECT_EQ(engine_->snapshot().local_bytes, 0u);
  check(range);
}

TEST_F(directed, a_page_that_was_dropped_past_the_engine_can_be_moved) {
  const page_range from{0, 4};
  const page_range to{engine::block_pages, 4};
  ASSERT_TRUE(engine_->ranges().allocate_guarded(from));
  ASSERT_TRUE(engine_->ranges().allocate_guarded(to));
  write(from);
  ASSERT_TRUE(kernel_.drop_behind(2));
  expected_.drop_behind(2);
  ASSERT_TRUE(engine_->ranges().move(from, to.first));
  expected_.move(from, to.first);
  EXPECT_EQ(count_in(from, state::untouched), 4u);
  EXPECT_EQ(count_in(to, state::resident), 3u);
  EXPECT_EQ(state_of(to.first + 2), state::untouched);
  EXPECT_EQ(engine_->snapshot().local_bytes, 3 * page_bytes);
  check(to);
}

TEST_F(directed, pages_that_are_evicted_leave_in_batches_of_the_wanted_size) {
  const page_range range{0, 100};
  ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
  for (const auto& [pages_a_batch, batches] : {std::pair{1u, 100u}, std::pair{16u, 7u}, std::pair{64u, 2u}}) {
    check(range);
    const std::uint64_t before = kernel_.drops();
    engine_->eviction().evict(range, pages_a_batch);
    EXPECT_EQ(kernel_.drops() - before, batches);
    EXPECT_EQ(engine_->snapshot().local_bytes, 0u);
  }
}

TEST_F(directed, who_misses_evicts_where_the_background_is_late) {
  for (const bool free_to_choose : {true, false}) {
    auto measuring = engine::engine::create(
        kernel_, far_, clock_, {.heap_pages = heap_pages, .budget_pages = 600, .measures_where = free_to_choose});
    engine_ = std::move(measuring).value();
    fetcher_ = engine_->transfers().add_fetcher().value();
    // No block is allocated as a whole, so that no page is filled ahead.
    const page_range range{0, 500};
    ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
    ASSERT_TRUE(engine_->ranges().allocate_guarded({512, 100}));
    write(range);
    EXPECT_FALSE(engine_->eviction().reclaim_at_miss()) << "100 free frames are still more than half the low watermark";
    write({512, 70});
    EXPECT_EQ(engine_->eviction().reclaim_at_miss(), free_to_choose);
    EXPECT_EQ(engine_->eviction().free_frames(), free_to_choose ? 94 : 30);
    engine_->ranges().release(range);
    engine_->ranges().release({512, 100});
    settle();
  }
}

TEST_F(directed_slow, a_read_ahead_is_unattended_and_a_miss_is_not) {
  const page_range range{0, 100};
  store(range);
  settle();
  EXPECT_EQ(miss(50, false), outcome::in_flight);
  EXPECT_TRUE(engine_->transfers().under_way());
  EXPECT_FALSE(engine_->transfers().unattended());
  {
    const far::lock_guard guard(fetcher_->lock);
    EXPECT_EQ(fetcher_->prefetch({10, 4}, false, std::nullopt), 4u);
  }
  EXPECT_TRUE(engine_->transfers().unattended());
  settle();
  EXPECT_FALSE(engine_->transfers().unattended());
  check(range);
}

TEST_F(directed, a_miss_brings_the_rest_of_a_region_in_use) {
  write_in_a_region_in_use();
}

// I2: pages that are touched while their batch is being written have two frames for a while.
TEST_F(directed_slow, rescues_exceed_the_budget_by_one_batch_at_most) {
  const page_range range{0, 400};
  ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
  write(range);
  engine_->eviction().resize(410);
  while (engine_->eviction().reclaim_in_background()) {
  }
  ASSERT_GT(count_in(range, state::evicting), 2 * engine::batch_pages);
  std::uint64_t rescued = 0;
  for (page_id page = range.first; page < range.end(); ++page) {
    if (state_of(page) == state::evicting && miss(page, false) == outcome::resolved) ++rescued;
    engine_->validate();
  }
  EXPECT_EQ(rescued, 10 + engine::batch_pages);
  EXPECT_EQ(engine_->snapshot().rescues, rescued);
  check(range);
}

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
  EXPECT_LT(far_.failed_reads(), 40u) << "the pauses grow";
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

// A bit that flips, zeros, the bytes of another slot: what comes in is right, or nothing comes in.
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

class directed_direct : public directed {
 protected:
  directed_direct() : directed(0, true) {}
};

TEST_F(directed_direct, a_miss_brings_the_rest_of_a_region_in_use) {
  write_in_a_region_in_use();
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

TEST_F(directed, remote_pages_move_by_name) {
  const page_range from{0, 100};
  const page_id to = 1024;
  ASSERT_TRUE(engine_->ranges().allocate_guarded(from));
  write(from);
  engine_->eviction().evict({0, 60});
  ASSERT_TRUE(engine_->ranges().allocate_guarded({to, 100}));
  ASSERT_TRUE(engine_->ranges().move(from, to));
  expected_.move(from, to);
  EXPECT_EQ(engine_->snapshot().misses, 0u);
  EXPECT_EQ(count_in(from, state::untouched), from.count);
  EXPECT_EQ(count_in({to, 60}, state::remote), 60u);
  EXPECT_EQ(count_in({to + 60, 40}, state::resident), 40u);
  engine_->validate();
  check({to, 100});
  check(from);
}

// The thread that reports a first write may be held up between what it says in the word and what it tells the kernel.
TEST_F(directed, permission_to_write_never_comes_to_a_clean_page) {
  const page_range range{0, 1};
  ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
  check(range);
  write(range);
  for (int times = 0; times < 2; ++times) {
    engine_->eviction().evict(range);
    check(range);
    settle();
  }
  ASSERT_TRUE(kernel_.is_write_protected(0));
  engine::fetcher& others = *engine_->transfers().add_fetcher().value();
  kernel_.before_allow_write([&] {
    // The first time back the page is mapped writable in any case.
    for (int times = 0; times < 2; ++times) {
      engine_->eviction().evict(range);
      const far::lock_guard guard(others.lock);
      static_cast<void>(engine_->misses().handle(others, streams_, 0, false));
      static_cast<void>(others.poll(engine::caller::of_program));
    }
  });
  write(range);
  const engine::page_word word = engine_->state_for_tests().pages.load(0);
  EXPECT_TRUE(word.where() != state::resident || word.dirty() || kernel_.is_write_protected(0));
  engine_->eviction().evict(range);
  check(range);
}

// A drop that meets locked memory has dropped the pages before it.
TEST_F(directed, clean_pages_beside_a_locked_one_keep_their_bytes) {
  const page_range range{0, 64};
  ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
  write(range);
  // The first time back they are mapped writable, because they were written to before; the second time as clean pages.
  for (int times = 0; times < 2; ++times) {
    engine_->eviction().evict(range);
    check(range);
    settle();
  }
  ASSERT_TRUE(kernel_.is_write_protected(39));
  kernel_.set_locked({40, 1}, true);
  engine_->eviction().evict(range);
  EXPECT_EQ(count_in(range, state::remote), range.count - 1);
  EXPECT_EQ(state_of(40), state::resident);
  engine_->validate();
  check(range);
}

TEST_F(directed, a_pinned_page_stays_and_the_rest_of_its_block_goes) {
  const page_range range{0, 100};
  ASSERT_TRUE(engine_->ranges().allocate(range));
  ASSERT_TRUE(engine_->pins().try_pin(7)) << "not touched so far";
  engine_->eviction().evict(range);
  EXPECT_EQ(kernel_.touch(7, true), simulated_kernel::fault::none);
  EXPECT_EQ(kernel_.touch(8, true), simulated_kernel::fault::missing);
  engine_->pins().unpin(7);
  engine_->eviction().evict(range);
  EXPECT_EQ(kernel_.touch(7, false), simulated_kernel::fault::missing);
}

TEST_F(directed, a_pinned_page_that_may_only_be_read_is_filled_by_the_pager) {
  const page_range range{0, 100};
  ASSERT_TRUE(engine_->ranges().allocate(range));
  kernel_.set_faults({.refused_populates = 1000});
  EXPECT_FALSE(engine_->pins().try_pin(7)) << "to be filled by a miss, in a block that is guarded";
  kernel_.set_faults({});
  ASSERT_EQ(resolve(7, true), outcome::resolved);
  ASSERT_TRUE(engine_->pins().try_pin(7));
  engine_->eviction().evict(range);
  EXPECT_EQ(kernel_.touch(7, true), simulated_kernel::fault::none);
  engine_->pins().unpin(7);
}

TEST_F(directed, a_block_freed_and_allocated_again_is_zeros) {
  const page_range range{512, 512};
  ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
  write(range);
  engine_->eviction().evict({512, 300});
  engine_->ranges().release(range);
  EXPECT_EQ(engine_->snapshot().far_bytes, 0u);
  EXPECT_EQ(engine_->snapshot().local_bytes, 0u);
  EXPECT_EQ(kernel_.present_pages(), 0u);
  expected_.forget(range);
  ASSERT_TRUE(engine_->ranges().allocate(range));
  check(range);
  engine_->validate();
}

// A handler may look at a fault late, when the program has freed the page: then the page is filled once more.
TEST_F(directed, a_late_miss_does_not_outlive_its_block) {
  ASSERT_TRUE(engine_->ranges().allocate_guarded({0, 20}));
  write({0, 20});
  engine_->ranges().release({10, 10});
  ASSERT_EQ(miss(12, true), outcome::resolved);
  EXPECT_EQ(state_of(12), state::resident);
  engine_->ranges().release({0, 10});
  EXPECT_EQ(state_of(12), state::untouched);
  EXPECT_EQ(engine_->snapshot().local_bytes, 0u);
  EXPECT_EQ(miss(12, true), outcome::resolved) << "only woken";
  EXPECT_EQ(state_of(12), state::untouched);
  engine_->validate();
}

TEST_F(directed, a_late_miss_does_not_stand_in_the_way_of_a_move) {
  const page_range from{0, 3};
  const page_id to = 1024;
  ASSERT_TRUE(engine_->ranges().allocate_guarded(from));
  write(from);
  engine_->eviction().evict({0, 1});
  ASSERT_TRUE(engine_->ranges().allocate_guarded({to, 3}));
  ASSERT_EQ(miss(to, true), outcome::resolved);
  ASSERT_EQ(miss(to + 1, true), outcome::resolved);
  ASSERT_TRUE(engine_->ranges().move(from, to));
  expected_.move(from, to);
  engine_->validate();
  check({to, 3});
}

}  // namespace
}  // namespace far::simulation
