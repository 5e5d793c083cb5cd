// The type under which a part of the engine sees the core does not show what is not the part's business.
#include "engine/core.h"

#include <gtest/gtest.h>

#include <span>

namespace far::engine {
namespace {

template <typename Core>
concept selects_victims = requires(Core& core, std::span<page_id> victims) { core.select_victims(victims); };
template <typename Core>
concept stalls = requires(Core& core) { core.stall(stall_reason::no_space); };
template <typename Core>
concept asks_the_filter = requires(Core& core) { core.filter->on_unguarded_miss(0); };
template <typename Core>
concept reaches_the_far_tier = requires(Core& core) { core.far.expected_speed(); };
template <typename Core>
concept reaches_staging = requires(Core& core) { core.staged(0); };
template <typename Core>
concept frees_slots = requires(Core& core) { core.free_slot(0); };

TEST(core_for_ranges, shows_pages_and_frames_but_no_far_tier) {
  EXPECT_TRUE(frees_slots<core_for_ranges>);
  EXPECT_FALSE(reaches_the_far_tier<core_for_ranges>);
  EXPECT_FALSE(reaches_staging<core_for_ranges>);
  EXPECT_FALSE(selects_victims<core_for_ranges>);
}

TEST(core_for_misses, shows_the_far_tier_but_nothing_that_evicts) {
  EXPECT_TRUE(reaches_the_far_tier<core_for_misses>);
  EXPECT_TRUE(reaches_staging<core_for_misses>);
  EXPECT_FALSE(selects_victims<core_for_misses>);
  EXPECT_FALSE(stalls<core_for_misses>);
  EXPECT_FALSE(asks_the_filter<core_for_misses>);
}

TEST(core, shows_all_to_eviction) {
  EXPECT_TRUE(selects_victims<core>);
  EXPECT_TRUE(stalls<core>);
  EXPECT_TRUE(asks_the_filter<core>);
}

TEST(core_state, shows_nothing) {
  EXPECT_FALSE(frees_slots<core_state>);
  EXPECT_FALSE(reaches_the_far_tier<core_state>);
}

}  // namespace
}  // namespace far::engine
