// A simulated world for single situations: one thread, step by step.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>

#include "engine/engine.h"
#include "model.h"
#include "simulated_backend.h"
#include "simulated_kernel.h"

namespace far::simulation {

using engine::outcome;
using engine::state;

inline constexpr std::uint64_t heap_pages = 2048;
inline constexpr std::uint64_t slots = 8192;

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

class directed_direct : public directed {
 protected:
  directed_direct() : directed(0, true) {}
};

}  // namespace far::simulation
