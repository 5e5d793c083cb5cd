// Medians of groups by counting, beside those of sorted numbers. Needs no far heap.
#include "far/detail/group_medians.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace far::detail {
namespace {

template <typename T>
struct grouped_number {
  std::uint32_t group;
  T number;
};

template <typename T>
std::optional<double> sorted_median(std::vector<T> numbers) {
  if (numbers.empty()) return std::nullopt;
  std::ranges::sort(numbers);
  const auto low = static_cast<double>(numbers[(numbers.size() - 1) / 2]);
  const auto high = static_cast<double>(numbers[numbers.size() / 2]);
  return low == high ? low : (low + high) / 2;
}

// Returns the number of passes. The first `sampled` numbers are also the sample.
template <typename T>
int expect_medians(const std::vector<grouped_number<T>>& all, std::size_t groups, std::size_t sampled = 0) {
  std::vector<std::vector<T>> expected(groups);
  reduced_numbers known{.count = all.size()};
  if (!all.empty()) {
    const auto [least, greatest] = std::ranges::minmax_element(all, {}, &grouped_number<T>::number);
    known.least = bits_of(least->number);
    known.greatest = bits_of(greatest->number);
  }
  for (const auto& [group, number] : all) expected[group].push_back(number);
  std::vector<std::uint32_t> group_of = {~std::uint32_t{0}};  // in no group
  std::vector<T> numbers = {T{1}};
  for (const auto& [group, number] : all) {
    group_of.push_back(group);
    numbers.push_back(number);
  }
  group_medians<T> found{summary<T>(known)};
  found.sample(std::span(group_of).first(sampled), std::span<const T>(numbers).first(sampled), {});
  int passes = 0;
  do {
    ++passes;
    EXPECT_LE(passes, 8);
    // Groups are found as they come, but the last ones have no number.
    std::size_t seen = 0;
    constexpr std::size_t some = 1'000;
    for (std::size_t first = 0; first < numbers.size(); first += some) {
      const std::size_t count = std::min(some, numbers.size() - first);
      for (std::size_t i = std::max<std::size_t>(first, 1); i < first + count; ++i) {
        seen = std::max<std::size_t>(seen, group_of[i] + 1);
      }
      EXPECT_TRUE(found.expect(seen));
      found.add(std::span(group_of).subspan(first, count), std::span<const T>(numbers).subspan(first, count), {});
    }
    EXPECT_TRUE(found.expect(groups));
  } while (found.next() && passes < 9);
  for (std::size_t group = 0; group < groups; ++group) {
    EXPECT_EQ(found.of(group), sorted_median(expected[group])) << group;
  }
  return passes;
}

TEST(group_medians, of_few_different_numbers_take_one_pass) {
  std::mt19937_64 random(1);
  std::vector<grouped_number<std::int32_t>> all(100'000);
  for (auto& [group, number] : all) {
    group = static_cast<std::uint32_t>(random() % 31);
    number = static_cast<std::int32_t>(random() % 2'000) - 1'000;
  }
  EXPECT_EQ(expect_medians(all, 32), 1);
}

TEST(group_medians, of_all_kinds_of_integers) {
  std::mt19937_64 random(2);
  for (const unsigned bits : {0u, 10u, 40u, 62u}) {
    std::vector<grouped_number<std::int64_t>> all(20'000);
    for (auto& [group, number] : all) {
      group = static_cast<std::uint32_t>(random() % 5);
      number = static_cast<std::int64_t>(random()) >> bits;
    }
    all.front().number = std::numeric_limits<std::int64_t>::max();
    all.back().number = std::numeric_limits<std::int64_t>::min() + 1;
    static_cast<void>(expect_medians(all, 6));
  }
}

// The two in the middle of each group are as far apart as can be, and each of them is there many times.
TEST(group_medians, of_numbers_at_both_ends) {
  std::vector<grouped_number<std::int64_t>> all;
  for (std::uint32_t i = 0; i < 600'000; ++i) {
    all.push_back({i % 3, i / 3 % 2 == 0 ? std::numeric_limits<std::int64_t>::min() + 1
                                         : std::numeric_limits<std::int64_t>::max()});
  }
  static_cast<void>(expect_medians(all, 3));
  all.push_back({0, 5});
  static_cast<void>(expect_medians(all, 3));
}

// So many in a small part of a wide interval that one pass does not tell them apart.
TEST(group_medians, of_numbers_close_together) {
  std::mt19937_64 random(3);
  std::vector<grouped_number<double>> all(400'000);
  for (auto& [group, number] : all) {
    group = static_cast<std::uint32_t>(random() % 200);
    number = 1000 + static_cast<double>(random() % 1'000'003) / 1e9;
  }
  all[1].number = -std::numeric_limits<double>::infinity();
  all[2].number = std::numeric_limits<double>::infinity();
  EXPECT_GT(expect_medians(all, 200), 2);
}

// Far apart, but for the middle ones of each group, which are not those of another.
template <typename T>
std::vector<grouped_number<T>> spread(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<grouped_number<T>> all(count);
  for (auto& [group, number] : all) {
    group = static_cast<std::uint32_t>(random() % 40);
    const double far_off = std::ldexp(static_cast<double>(random() % 2001) - 1000, static_cast<int>(random() % 20));
    number = static_cast<T>(1000.0 * group + (random() % 2 == 0 ? static_cast<double>(random() % 100) : far_off));
  }
  return all;
}

TEST(group_medians, take_one_pass_over_integers_of_which_there_is_a_sample) {
  const auto all = spread<std::int32_t>(400'000, 5);
  EXPECT_GT(expect_medians(all, 40), 1);
  EXPECT_EQ(expect_medians(all, 40, 40'000), 1);
  EXPECT_EQ(expect_medians(spread<std::int64_t>(400'000, 6), 41, 40'000), 1);
}

TEST(group_medians, take_two_passes_over_reals_of_which_there_is_a_sample) {
  std::mt19937_64 random(7);
  std::vector<grouped_number<double>> all(600'000);
  for (auto& [group, number] : all) {
    group = static_cast<std::uint32_t>(random() % 4);
    number = 1000 + static_cast<double>(random() % 1'000'000'007) / 1e12;
  }
  all[1].number = -std::numeric_limits<double>::infinity();
  all[2].number = std::numeric_limits<double>::infinity();
  EXPECT_GT(expect_medians(all, 4), 2);
  EXPECT_LE(expect_medians(all, 4, 40'000), 2);
}

// The sample has only what is below the middle, above it, or of some groups.
TEST(group_medians, are_right_whatever_the_sample_says) {
  for (const bool greatest : {false, true}) {
    auto all = spread<std::int64_t>(100'000, 8);
    std::ranges::sort(all, {}, [&](const auto& one) { return greatest ? -one.number : one.number; });
    EXPECT_GT(expect_medians(all, 40, 20'000), 1);
    auto reals = spread<double>(100'000, 9);
    std::ranges::sort(reals, {}, [&](const auto& one) { return greatest ? -one.number : one.number; });
    EXPECT_GT(expect_medians(reals, 40, 20'000), 1);
    std::ranges::sort(all, {}, [](const auto& one) { return one.group; });
    static_cast<void>(expect_medians(all, 40, 10'000));
    for (auto& [group, number] : all) number = number > 20'000 ? std::numeric_limits<std::int64_t>::max() : -1;
    static_cast<void>(expect_medians(all, 40, 1'000));
  }
}

TEST(group_medians, of_zeros_with_signs_and_of_nothing) {
  std::vector<grouped_number<double>> all = {{0, -0.0}, {0, 0.0}, {0, -0.0}, {1, -1.5}, {1, 2.5}, {3, 7}};
  static_cast<void>(expect_medians(all, 5));
  static_cast<void>(expect_medians(std::vector<grouped_number<std::uint8_t>>(), 2));
}

TEST(group_medians, refuse_many_groups) {
  group_medians<std::int16_t> medians{summary<std::int16_t>(reduced_numbers{})};
  EXPECT_TRUE(medians.expect(group_medians<std::int16_t>::most_groups));
  EXPECT_FALSE(medians.expect(group_medians<std::int16_t>::most_groups + 1));
}

}  // namespace
}  // namespace far::detail
