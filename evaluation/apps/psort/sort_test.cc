#include "sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "apps/random.h"

namespace psort {
namespace {

std::vector<std::uint64_t> random_values(std::size_t count, std::uint64_t range) {
  std::vector<std::uint64_t> values(count);
  apps::random_words random(count);
  for (std::uint64_t& value : values) value = random.next() % range;
  return values;
}

void expect_sorted(std::vector<std::uint64_t> values, unsigned threads) {
  SCOPED_TRACE(testing::Message() << values.size() << " values, " << threads << " threads");
  std::vector<std::uint64_t> expected = values;
  std::sort(expected.begin(), expected.end());
  apps::phases phases;
  sort(values, threads, phases);
  // Not EXPECT_EQ, which would print all of them.
  EXPECT_TRUE(values == expected);
  EXPECT_EQ(phases.all().size(), 6u);
}

TEST(psort, sorts_any_number_of_values_by_any_number_of_threads) {
  for (const std::size_t count : {0, 1, 2, 3, 7, 8, 9, 100, 1000}) {
    for (const unsigned threads : {1, 2, 3, 8, 13}) expect_sorted(random_values(count, UINT64_MAX), threads);
  }
}

TEST(psort, splits_blocks_that_are_large) {
  for (const unsigned threads : {1, 2, 5}) expect_sorted(random_values(300'000, UINT64_MAX), threads);
}

TEST(psort, sorts_values_that_repeat) {
  for (const std::uint64_t range : {1, 2, 10}) expect_sorted(random_values(200'000, range), 4);
}

TEST(psort, sorts_what_is_sorted) {
  std::vector<std::uint64_t> values = random_values(200'000, UINT64_MAX);
  std::sort(values.begin(), values.end());
  expect_sorted(values, 3);
  std::sort(values.begin(), values.end(), std::greater<>());
  expect_sorted(values, 3);
}

TEST(psort, sorts_what_rises_and_falls) {
  std::vector<std::uint64_t> values(200'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::min(i, values.size() - i);
  expect_sorted(values, 1);
}

}  // namespace
}  // namespace psort
