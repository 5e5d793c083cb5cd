#include "base/forecast.h"

#include <gtest/gtest.h>

namespace far {
namespace {

int cases_until(forecast& one, bool came_true, bool is_right) {
  int cases = 0;
  for (; one.is_right() != is_right && cases < 1000; ++cases) one.note(came_true);
  return cases;
}

TEST(forecast, is_right_until_told_otherwise) {
  EXPECT_TRUE(forecast().is_right());
}

TEST(forecast, changes_within_about_a_hundred_cases_and_forgets_what_came_before) {
  forecast one;
  for (const bool came_true : {false, true, false}) {
    const int cases = cases_until(one, came_true, came_true);
    EXPECT_GT(cases, 50);
    EXPECT_LT(cases, 150);
    for (int i = 0; i < 100'000; ++i) one.note(came_true);
  }
}

TEST(forecast, follows_the_larger_share) {
  forecast one;
  for (int i = 0; i < 10'000; ++i) one.note(i % 10 < 3);
  EXPECT_FALSE(one.is_right());
  for (int i = 0; i < 10'000; ++i) one.note(i % 10 < 7);
  EXPECT_TRUE(one.is_right());
}

}  // namespace
}  // namespace far
