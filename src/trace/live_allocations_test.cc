#include "trace/live_allocations.h"

#include <gtest/gtest.h>

namespace far::trace {
namespace {

TEST(live_allocations, holds_from_its_first_byte_to_its_last) {
  live_allocations live;
  live.add(1000, 100, 7);
  EXPECT_EQ(live.find(999), live_allocations::none);
  EXPECT_EQ(live.find(1000), 7u);
  EXPECT_EQ(live.find(1099), 7u);
  EXPECT_EQ(live.find(1100), live_allocations::none);
}

TEST(live_allocations, the_nearest_of_nested_ones) {
  live_allocations live;
  live.add(0, 10000, 1);
  live.add(2000, 500, 2);
  live.add(3000, 500, 3);
  EXPECT_EQ(live.find(2100), 2u);
  EXPECT_EQ(live.find(2600), 1u);  // between the inner ones
  EXPECT_EQ(live.find(3100), 3u);
  live.remove(2000);
  EXPECT_EQ(live.find(2100), 1u);
}

TEST(live_allocations, what_was_released_holds_nothing_and_addresses_are_used_again) {
  live_allocations live;
  live.add(1000, 100, 1);
  live.remove(1000);
  EXPECT_EQ(live.find(1050), live_allocations::none);
  live.add(1000, 50, 2);
  live.add(1000, 100, 3);
  EXPECT_EQ(live.find(1060), 3u);
}

}  // namespace
}  // namespace far::trace
