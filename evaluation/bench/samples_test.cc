#include "samples.h"

#include <gtest/gtest.h>

#include <vector>

namespace far::bench {
namespace {

TEST(percentile_of_sorted, interpolates_between_neighbours) {
  const std::vector<double> sorted = {10, 20, 30, 40};
  EXPECT_DOUBLE_EQ(percentile_of_sorted(sorted, 0), 10);
  EXPECT_DOUBLE_EQ(percentile_of_sorted(sorted, 0.5), 25);
  EXPECT_DOUBLE_EQ(percentile_of_sorted(sorted, 1), 40);
}

TEST(percentile_of_sorted, refuses_what_has_no_answer) {
  EXPECT_DEATH(static_cast<void>(percentile_of_sorted({}, 0.5)), "percentile of nothing");
  const std::vector<double> one = {1};
  EXPECT_DEATH(static_cast<void>(percentile_of_sorted(one, 1.5)), "outside 0 to 1");
}

TEST(summarise, takes_samples_in_any_order) {
  const std::vector<double> samples = {5, 1, 3};
  const summary figures = summarise(samples);
  EXPECT_DOUBLE_EQ(figures.median, 3);
  EXPECT_DOUBLE_EQ(figures.min, 1);
  EXPECT_DOUBLE_EQ(figures.max, 5);
  EXPECT_EQ(figures.count, 3u);
}

TEST(summarise, of_nothing_is_zero) {
  EXPECT_EQ(summarise({}).count, 0u);
  EXPECT_DOUBLE_EQ(summarise({}).median, 0);
}

TEST(summarise_latencies, subtracts_the_clock_and_scales) {
  std::vector<std::uint32_t> ticks;
  for (std::uint32_t i = 1; i <= 101; ++i) ticks.push_back(i * 10 + 20);  // 10 to 1010 ticks, and 20 for the clock
  const latency_summary figures = summarise_latencies(ticks, 0.5, 20);
  EXPECT_DOUBLE_EQ(figures.p50_ns, 255);
  EXPECT_DOUBLE_EQ(figures.p99_ns, 500);
  EXPECT_DOUBLE_EQ(figures.max_ns, 505);
  EXPECT_DOUBLE_EQ(figures.mean_ns, 255);
}

TEST(summarise_latencies, never_goes_below_zero) {
  std::vector<std::uint32_t> ticks = {5, 5, 5};
  EXPECT_DOUBLE_EQ(summarise_latencies(ticks, 1, 20).mean_ns, 0);
}

TEST(summarise_latencies, of_nothing_is_zero) {
  std::vector<std::uint32_t> ticks;
  EXPECT_DOUBLE_EQ(summarise_latencies(ticks, 1, 0).p99_ns, 0);
}

}  // namespace
}  // namespace far::bench
