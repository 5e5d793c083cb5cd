#include "engine/eviction_place.h"

#include <gtest/gtest.h>

namespace far::engine {
namespace {

// Evicts batches of 64 pages wherever the object says, each page at the cost of its place, and returns how many of the
// last hundred were evicted at misses.
unsigned settle(eviction_places& places, std::uint64_t background_ns, std::uint64_t at_miss_ns) {
  unsigned at_miss = 0;
  for (unsigned i = 0; i < 4000; ++i) {
    const eviction_place place = places.next();
    places.note(place, 64 * (place == eviction_place::background ? background_ns : at_miss_ns), 64);
    if (i >= 3900 && place == eviction_place::at_miss) ++at_miss;
  }
  return at_miss;
}

TEST(eviction_place, begins_in_the_background) {
  const eviction_places places(eviction_place::background, true);
  EXPECT_EQ(places.next(), eviction_place::background);
}

TEST(eviction_place, leaves_a_background_that_is_dear) {
  eviction_places places(eviction_place::background, true);
  EXPECT_GE(settle(places, 25'000, 1500), 94u);
}

TEST(eviction_place, stays_in_a_background_that_is_not_much_dearer) {
  eviction_places places(eviction_place::background, true);
  EXPECT_LE(settle(places, 1900, 1000), 6u);
}

TEST(eviction_place, comes_back_when_costs_change) {
  eviction_places places(eviction_place::background, true);
  EXPECT_GE(settle(places, 25'000, 1500), 94u);
  EXPECT_LE(settle(places, 1000, 1500), 6u);
}

TEST(eviction_place, a_fixed_place_is_not_left) {
  eviction_places background(eviction_place::background, false);
  EXPECT_EQ(settle(background, 25'000, 1), 0u);
  eviction_places at_miss(eviction_place::at_miss, false);
  EXPECT_EQ(settle(at_miss, 1, 25'000), 100u);
}

}  // namespace
}  // namespace far::engine
