// Single situations in the simulated world, one thread, step by step: those that random runs meet too rarely to be
// relied on, and the engine's counters in them.
#include "directed.h"

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "engine/miss_list.h"

namespace far::simulation {
namespace {

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
  ASSERT_TRUE(engine_->ranges().guard_source(from));
  engine_->ranges().move(from, to.first);
  expected_.move(from, to.first);
  EXPECT_EQ(count_in(from, state::untouched), 4u);
  EXPECT_EQ(count_in(to, state::resident), 3u);
  EXPECT_EQ(state_of(to.first + 2), state::untouched);
  EXPECT_EQ(engine_->snapshot().local_bytes, 3 * page_bytes);
  check(to);
}

TEST_F(directed, a_buffer_that_is_filled_in_either_direction_faults_once_for_each_doubling) {
  for (const bool upwards : {true, false}) {
    start({.budget_pages = 2000});
    const page_range whole{0, engine::block_pages};
    ASSERT_TRUE(engine_->ranges().allocate_guarded(whole));
    std::vector<page_id> missed;
    for (std::size_t i = 0; i < whole.count; ++i) {
      const page_id page = upwards ? whole.first + i : whole.end() - 1 - i;
      if (state_of(page) == state::untouched) missed.push_back(i);
      write({page, 1});
    }
    // 64 pages at a time from the 64th on.
    EXPECT_EQ(missed, (std::vector<page_id>{0, 1, 3, 7, 15, 31, 63, 127, 191, 255, 319, 383, 447, 511}));
    check(whole);
    engine_->ranges().release(whole);
    settle();
  }
}

TEST_F(directed, a_hole_between_filled_pages_is_filled_upwards_and_stops_at_them) {
  start({.budget_pages = 2000});
  const page_range whole{0, engine::block_pages};
  ASSERT_TRUE(engine_->ranges().allocate_guarded(whole));
  for (const page_id page : {100, 98, 99}) write({page, 1});
  EXPECT_EQ(count_in(whole, state::resident), 3u);
  write({97, 1});
  EXPECT_EQ(count_in({94, 7}, state::resident), 7u);
  EXPECT_EQ(count_in(whole, state::resident), 7u);
  check(whole);
  engine_->ranges().release(whole);
  settle();
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
    start({.budget_pages = 600, .measures_where = free_to_choose});
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
    EXPECT_EQ(fetcher_->prefetch({10, 4}, {}), 4u);
  }
  EXPECT_TRUE(engine_->transfers().unattended());
  settle();
  EXPECT_FALSE(engine_->transfers().unattended());
  check(range);
}

class host_of_one_thread final : public engine::host {
 public:
  void enter() noexcept override {}
  void leave() noexcept override {}
  void rest(std::uint64_t /*nanoseconds*/) noexcept override {}
  void wake_background() noexcept override {}
  [[nodiscard]] bool has_pollers() const noexcept override { return false; }
  void poll_soon() noexcept override {}
  [[nodiscard]] std::size_t preferred_fetcher() const noexcept override { return 0; }
};

// The loop that serves misses sleeps until an arrival wakes it, unless a miss waits for anything else.
TEST_F(directed_slow, only_misses_that_await_no_arrival_want_another_look) {
  store({0, 100});
  settle();
  host_of_one_thread around;
  engine::miss_list misses(*engine_, around, *fetcher_, [](page_id) { return false; });
  const auto serve = [&] {
    const far::lock_guard guard(fetcher_->lock);
    static_cast<void>(misses.serve());
  };
  misses.add(50, false, 1);
  EXPECT_TRUE(misses.wants_another_look()) << "nobody has looked yet";
  serve();
  serve();
  EXPECT_EQ(state_of(50), state::fetching);
  EXPECT_FALSE(misses.wants_another_look());
  misses.add(50, false, 2);
  serve();
  EXPECT_TRUE(misses.wants_another_look()) << "the second miss waits for the first";
  for (int steps = 0; steps < 100 && !misses.empty(); ++steps) {
    clock_.advance_to(clock_.now_ns() + 100'000);
    serve();
  }
  EXPECT_TRUE(misses.empty());
  check({50, 1});
}

TEST_F(directed, a_miss_brings_the_rest_of_a_region_in_use) {
  write_in_a_region_in_use();
}
TEST_F(directed_direct, a_miss_brings_the_rest_of_a_region_in_use) {
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

TEST_F(directed, remote_pages_move_by_name) {
  const page_range from{0, 100};
  const page_id to = 1024;
  ASSERT_TRUE(engine_->ranges().allocate_guarded(from));
  write(from);
  engine_->eviction().evict({0, 60});
  ASSERT_TRUE(engine_->ranges().allocate_guarded({to, 100}));
  ASSERT_TRUE(engine_->ranges().guard_source(from));
  engine_->ranges().move(from, to);
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

TEST_F(directed, the_kernel_says_why_it_does_not_fill_an_open_block) {
  const page_range range{0, 100};
  ASSERT_TRUE(engine_->ranges().allocate(range));
  kernel_.set_faults({.refused_populates = 1000});
  int failure = 0;
  EXPECT_TRUE(engine_->ranges().populate_open(range, true, &failure));
  EXPECT_EQ(failure, EINVAL);
  kernel_.set_faults({});
  EXPECT_TRUE(engine_->ranges().populate_open(range, true, &failure));
  EXPECT_EQ(failure, 0);
  EXPECT_TRUE(kernel_.is_present(99));
  engine_->eviction().evict(range);
  EXPECT_FALSE(engine_->ranges().populate_open(range, true, &failure)) << "it is guarded";
}

// As a reservation that a system call reads. A child of fork guards again only what was ever allocated.
TEST_F(directed, a_pin_leaves_a_block_fresh_that_was_never_allocated) {
  const page_range range{0, 300};
  kernel_.set_faults({.refused_populates = 1000});
  ASSERT_TRUE(engine_->pins().try_pin(7)) << "nothing that a miss could bring";
  engine_->pins().unpin(7);
  kernel_.set_faults({});
  EXPECT_EQ(state_of(7), state::untouched);
  ASSERT_TRUE(engine_->ranges().allocate(range));
  write(range);
  EXPECT_EQ(engine_->snapshot().zero_fills, 0u) << "it opens like any other";
  engine_->validate();
}

// Their owner is not in the process.
TEST_F(directed, a_pin_of_a_fresh_block_ends_in_the_child_of_a_fork) {
  ASSERT_TRUE(engine_->pins().try_pin(7));
  ASSERT_TRUE(engine_->pins().try_pin(8));
  const page_range of_forking_thread{8, 1};
  const auto be_child = [&] {
    kernel_.become_child();
    const bool goes_on = engine_->fork().resume_in_child({&of_forking_thread, 1}).ok();
    std::_Exit(goes_on && word_of(7).pins() == 0 && word_of(8).pins() == 1 ? 0 : 1);
  };
  engine_->fork().lock();
  EXPECT_EXIT(be_child(), ::testing::ExitedWithCode(0), "");
  engine_->fork().unlock();
  engine_->pins().unpin(7);
  engine_->pins().unpin(8);
}

TEST_F(directed, a_block_is_filled_that_is_half_guarded_because_the_kernel_cannot_go_on_nor_back) {
  const page_range range{0, 300};
  const page_range guarded{0, 256};
  ASSERT_TRUE(engine_->ranges().allocate(range));
  write({10, 1});
  kernel_.set_faults({.failing_guards = 1000, .failing_unguards = 1000});
  engine_->eviction().evict(range);
  ASSERT_EQ(kernel_.touch(0, true), simulated_kernel::fault::missing);
  kernel_.set_faults({});
  ASSERT_EQ(resolve(0, true), outcome::resolved);
  EXPECT_EQ(state_of(0), state::untouched) << "the block is open";
  ASSERT_TRUE(engine_->pins().try_pin(1));
  EXPECT_TRUE(kernel_.is_present(1));
  engine_->pins().unpin(1);
  int failure = 0;
  EXPECT_TRUE(engine_->ranges().populate_open(guarded, true, &failure));
  EXPECT_EQ(failure, 0);
  EXPECT_TRUE(kernel_.is_present(255));
  engine_->validate();
  check(range);
  engine_->eviction().evict(range);
  EXPECT_EQ(count_in(range, state::untouched), 0u) << "the second time, the kernel has room";
  check(range);
  engine_->ranges().release(range);
  EXPECT_EQ(kernel_.present_pages(), 0u);
}

TEST_F(directed, a_block_is_freed_that_the_kernel_has_refused_to_guard_as_a_whole) {
  const page_range range{0, 300};
  ASSERT_TRUE(engine_->ranges().allocate(range));
  write({10, 1});
  kernel_.set_faults({.failing_guards = 1000});
  engine_->eviction().evict(range);
  kernel_.set_faults({});
  EXPECT_EQ(kernel_.touch(0, true), simulated_kernel::fault::none) << "the block is open";
  engine_->ranges().release(range);
  expected_.forget(range);
  EXPECT_EQ(kernel_.present_pages(), 0u);
  ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
  write(range);
  engine_->eviction().evict(range);
  check(range);
  engine_->ranges().release(range);
}

TEST_F(directed, a_block_is_allocated_again_that_the_kernel_did_not_unguard) {
  const page_range range{0, 300};
  for (const bool opens : {true, false}) {
    ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
    write(range);
    kernel_.set_faults({.failing_unguards = 1000});
    engine_->ranges().release(range);
    kernel_.set_faults({});
    expected_.forget(range);
    EXPECT_EQ(kernel_.touch(7, true), simulated_kernel::fault::missing);
    ASSERT_TRUE(opens ? engine_->ranges().allocate(range) : engine_->ranges().allocate_guarded(range));
    write({7, 1});
    EXPECT_EQ(state_of(7), opens ? state::untouched : state::resident);
    check(range);
    engine_->validate();
    engine_->eviction().evict(range);
    check(range);
    engine_->ranges().release(range);
    expected_.forget(range);
    EXPECT_EQ(kernel_.present_pages(), 0u);
  }
}

// Threads hold all pages, and wait for a processor. A thread that wants a frame takes many steps meanwhile.
TEST_F(directed, pages_that_cannot_leave_for_a_moment_do_not_exceed_the_budget) {
  const page_range range{0, 600};
  ASSERT_TRUE(engine_->ranges().allocate_guarded({0, 640}));
  write(range);
  for (page_id page = range.first; page < range.end(); ++page) ASSERT_TRUE(engine_->pins().try_pin(page));
  for (int steps = 0; steps < 100'000; ++steps) {
    ASSERT_FALSE(engine_->eviction().reclaim()) << "no page can leave";
    if (steps % 2000 == 0) clock_.advance_to(clock_.now_ns() + 1'000'000);
  }
  EXPECT_EQ(miss(600, true), outcome::no_budget);
  for (page_id page = range.first; page < range.end(); ++page) engine_->pins().unpin(page);
  write({600, 40});
  settle();
  EXPECT_EQ(engine_->snapshot().over_budget_pages, 0u);
  check({0, 640});
}

TEST_F(directed, pages_that_cannot_leave_for_long_exceed_the_budget_until_they_can) {
  const page_range range{0, 600};
  ASSERT_TRUE(engine_->ranges().allocate_guarded({0, 640}));
  write(range);
  for (page_id page = range.first; page < range.end(); ++page) ASSERT_TRUE(engine_->pins().try_pin(page));
  const std::uint64_t since_ns = clock_.now_ns();
  for (int steps = 0; steps < 10'000 && miss(600, true) == outcome::no_budget; ++steps) {
    static_cast<void>(engine_->eviction().reclaim());
    clock_.advance_to(clock_.now_ns() + 1'000'000);
  }
  EXPECT_EQ(state_of(600), state::resident) << "nobody waits for ever";
  EXPECT_LT(clock_.now_ns() - since_ns, 1'000'000'000u);
  EXPECT_EQ(engine_->snapshot().over_budget_pages, 1u);
  for (page_id page = range.first; page < range.end(); ++page) engine_->pins().unpin(page);
  EXPECT_TRUE(engine_->eviction().reclaim()) << "the far tier works, so dirty pages leave at once";
  settle();
  EXPECT_GE(engine_->eviction().free_frames(), 0);
  write({601, 39});
  EXPECT_EQ(engine_->snapshot().over_budget_pages, 1u);
  check({0, 640});
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

TEST_F(directed, scattered_pages_are_discarded_by_one_call) {
  ASSERT_TRUE(engine_->ranges().allocate_guarded({0, 200}));
  for (page_id page = 0; page < 128; page += 2) write({page, 1});
  const std::uint64_t before = kernel_.drops();
  engine_->ranges().discard({0, 200});
  expected_.forget({0, 200});
  EXPECT_EQ(kernel_.drops() - before, 1u);
  EXPECT_EQ(engine_->snapshot().local_bytes, 0u);
  for (page_id page = 0; page < 200; page += 2) write({page, 1});
  kernel_.set_locked({40, 1}, true);
  engine_->ranges().discard({0, 200});
  EXPECT_EQ(count_in({0, 200}, state::untouched), 199u) << "more than fit into one call";
  EXPECT_EQ(state_of(40), state::resident) << "locked memory keeps its bytes";
  check({40, 1});
  engine_->validate();
  kernel_.set_locked({40, 1}, false);
  engine_->ranges().discard({0, 200});
  expected_.forget({0, 200});
  EXPECT_EQ(kernel_.present_pages(), 0u);
  check({0, 200});
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
  ASSERT_TRUE(engine_->ranges().guard_source(from));
  engine_->ranges().move(from, to);
  expected_.move(from, to);
  engine_->validate();
  check({to, 3});
}

}  // namespace
}  // namespace far::simulation
