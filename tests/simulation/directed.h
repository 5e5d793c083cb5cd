// A simulated world for single situations: one thread, step by step.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "simulated_backend.h"
#include "stepped_engine.h"

namespace far::simulation {

using engine::outcome;
using engine::state;

inline constexpr std::uint64_t heap_pages = 2048;
inline constexpr std::uint64_t slots = 8192;

class directed : public stepped_engine, public testing::Test {
 protected:
  explicit directed(std::uint64_t delay_ns = 0, bool is_direct = false)
      : stepped_engine(heap_pages),
        far_(keep(std::make_unique<simulated_backend>(threads_, random_, clock_, tier(delay_ns, is_direct)))) {
    start({.budget_pages = 600});
  }
  ~directed() override { settle(); }

  static far_tier tier(std::uint64_t delay_ns, bool is_direct) {
    far_tier chosen;
    chosen.is_direct = is_direct;
    chosen.slots = slots;
    chosen.maximum_delay_ns = delay_ns;
    return chosen;
  }

  // Allocates and writes the range, and evicts it.
  void store(page_range range) {
    ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
    write(range);
    engine_->eviction().evict(range);
  }

  // Half of a region has come back; a write to another page of it brings the rest, but for a sample.
  void write_in_a_region_in_use() {
    start({.budget_pages = 600,
           .policy = "second-chance",  // it leaves the marks of use for us to see
           .regions_come_whole = true});
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
    EXPECT_EQ(engine_->snapshot().sampled_pages, 0u) << "others of its epoch may still be missed";
    const page_range later{256, 160};
    store(later);  // two epochs
    check({later.first, 1});
    EXPECT_EQ(engine_->snapshot().sampled_pages, 1u);
    EXPECT_EQ(engine_->snapshot().wanted_samples, 1u);
    check(range);
    engine_->ranges().release(range);
    engine_->ranges().release(later);
    settle();
  }

  simulated_backend& far_;
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
