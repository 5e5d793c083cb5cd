#include "base/adaptive_spin.h"

#include <gtest/gtest.h>

namespace far {
namespace {

constexpr std::uint64_t us = 1'000;

TEST(adaptive_spin, begins_with_the_shortest_time) {
  EXPECT_EQ(adaptive_spin().limit_ns(), adaptive_spin::shortest_ns);
}

TEST(adaptive_spin, outlasts_gaps_like_those_before) {
  adaptive_spin spin;
  spin.note_gap(45 * us);
  for (int i = 0; i < 100; ++i) {
    EXPECT_GT(spin.limit_ns(), 60 * us);
    spin.note_gap(2 * us);  // beside it
    spin.note_gap(45 * us);
  }
}

TEST(adaptive_spin, never_exceeds_its_longest_time) {
  adaptive_spin spin;
  for (int i = 0; i < 10; ++i) spin.note_gap(190 * us);
  EXPECT_EQ(spin.limit_ns(), adaptive_spin::longest_ns);
}

TEST(adaptive_spin, gives_up_where_work_comes_seldom) {
  adaptive_spin spin;
  spin.note_gap(150 * us);
  for (int i = 0; i < 4; ++i) spin.note_gap(1'000 * us);
  EXPECT_EQ(spin.limit_ns(), adaptive_spin::shortest_ns);
}

TEST(adaptive_spin, shortens_when_work_comes_sooner) {
  adaptive_spin spin;
  spin.note_gap(100 * us);
  for (int i = 0; i < 60; ++i) spin.note_gap(5 * us);
  EXPECT_EQ(spin.limit_ns(), adaptive_spin::shortest_ns);
}

TEST(adaptive_spin, makes_way_for_others) {
  adaptive_spin spin;
  spin.note_gap(100 * us);
  spin.note_crowd();
  EXPECT_EQ(spin.limit_ns(), adaptive_spin::shortest_ns);
}

}  // namespace
}  // namespace far
