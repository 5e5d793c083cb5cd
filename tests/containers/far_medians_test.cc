// Medians of groups that a far tier helps to find, beside those of sorted numbers. Needs no far heap.
#include "far/detail/far_medians.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace far::detail {
namespace {

constexpr std::uint32_t no_group = ~std::uint32_t{0};

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

// As a far tier answers about some numbers.
template <typename T>
void answer_about(std::span<const grouped_number<T>> some, std::size_t groups, std::size_t buckets,
                  far_medians<T>& medians) {
  for (std::size_t group = 0; group < groups; ++group) {
    const group_buckets in = medians.buckets_of(group);
    std::vector<std::uint16_t> places(buckets + 1);
    std::uint64_t count = 0;
    T least{};
    T greatest{};
    bool is_any = false;
    for (const auto& one : some) {
      if (one.group != group) continue;
      ++count;
      const std::uint64_t key = key_of(one.number);
      const std::uint64_t place = key < in.lowest ? 0 : 1 + ((key - in.lowest) >> in.shift);
      if (place > buckets) continue;
      ++places[place];
      if (place == 0) continue;
      least = is_any ? std::min(least, one.number) : one.number;
      greatest = is_any ? std::max(greatest, one.number) : one.number;
      is_any = true;
    }
    const auto* const bytes = reinterpret_cast<const std::byte*>(places.data());
    if (count > 0) medians.add(group, count, least, greatest, bytes);
  }
}

// Returns the number of passes. The first `sampled` numbers are the sample; every third thousand of the numbers is
// counted here.
template <typename T>
int expect_medians(const std::vector<grouped_number<T>>& all, std::size_t groups, std::size_t buckets,
                   std::size_t sampled = 0) {
  std::vector<std::vector<T>> expected(groups);
  reduced_numbers known{.count = all.size()};
  if (!all.empty()) {
    const auto [least, greatest] = std::ranges::minmax_element(all, {}, &grouped_number<T>::number);
    known.least = bits_of(least->number);
    known.greatest = bits_of(greatest->number);
  }
  std::vector<std::uint32_t> group_of;
  std::vector<T> numbers;
  for (const auto& [group, number] : all) {
    if (group < groups) expected[group].push_back(number);
    group_of.push_back(group);
    numbers.push_back(number);
  }
  far_medians<T> found{summary<T>(known), buckets};
  found.sample(std::span(group_of).first(sampled), std::span<const T>(numbers).first(sampled), {}, no_group);
  found.end_sample();
  int passes = 0;
  do {
    ++passes;
    EXPECT_LE(passes, 70);
    constexpr std::size_t some = 1'000;
    for (std::size_t first = 0; first < all.size(); first += some) {
      const std::size_t count = std::min(some, all.size() - first);
      if (first / some % 3 == 1) {
        found.add(std::span(group_of).subspan(first, count), std::span<const T>(numbers).subspan(first, count), {},
                  no_group);
      } else {
        answer_about(std::span<const grouped_number<T>>(all).subspan(first, count), groups, buckets, found);
      }
    }
  } while (found.next() && passes < 71);
  for (std::size_t group = 0; group < groups; ++group) {
    EXPECT_EQ(found.of(group), sorted_median(expected[group])) << group;
  }
  return passes;
}

TEST(far_medians, of_all_kinds_of_integers) {
  std::mt19937_64 random(2);
  for (const unsigned bits : {0u, 10u, 40u, 62u}) {
    for (const std::size_t buckets : {2u, 8u, 255u}) {
      std::vector<grouped_number<std::int64_t>> all(10'000);
      for (auto& [group, number] : all) {
        group = static_cast<std::uint32_t>(random() % 5);
        number = static_cast<std::int64_t>(random()) >> bits;
      }
      all.front().number = std::numeric_limits<std::int64_t>::max();
      all.back().number = std::numeric_limits<std::int64_t>::min();
      static_cast<void>(expect_medians(all, 6, buckets));
    }
  }
}

// The two in the middle of each group are as far apart as can be.
TEST(far_medians, of_numbers_at_both_ends) {
  for (const std::size_t buckets : {2u, 37u}) {
    std::vector<grouped_number<std::int64_t>> all;
    for (std::uint32_t i = 0; i < 6'000; ++i) {
      all.push_back({i % 3, i / 3 % 2 == 0 ? std::numeric_limits<std::int64_t>::min()
                                           : std::numeric_limits<std::int64_t>::max()});
    }
    EXPECT_LE(expect_medians(all, 3, buckets), 3);
    all.push_back({0, 5});
    all.push_back({no_group, 7});
    static_cast<void>(expect_medians(all, 3, buckets));
  }
}

TEST(far_medians, take_one_or_two_passes_over_integers_of_which_there_is_a_sample) {
  std::mt19937_64 random(5);
  std::vector<grouped_number<std::int32_t>> all(100'000);
  for (auto& [group, number] : all) {
    group = static_cast<std::uint32_t>(random() % 7);
    number = static_cast<std::int32_t>(600 + random() % 400 + 100 * group);
  }
  all[1].number = 3'500'000;
  EXPECT_GT(expect_medians(all, 7, 29), 2);
  EXPECT_LE(expect_medians(all, 7, 29, 16'000), 2);
}

TEST(far_medians, of_reals_close_together_take_a_few_passes) {
  std::mt19937_64 random(7);
  std::vector<grouped_number<double>> all(60'000);
  for (auto& [group, number] : all) {
    group = static_cast<std::uint32_t>(random() % 4);
    number = 1000 + static_cast<double>(random() % 1'000'000'007) / 1e12;
  }
  all[1].number = -std::numeric_limits<double>::infinity();
  all[2].number = std::numeric_limits<double>::infinity();
  static_cast<void>(expect_medians(all, 4, 29));
  EXPECT_LE(expect_medians(all, 4, 29, 16'000), 6);
}

// The sample has only what is below the middle, or above it.
TEST(far_medians, are_right_whatever_the_sample_says) {
  for (const bool greatest : {false, true}) {
    std::mt19937_64 random(8);
    std::vector<grouped_number<double>> all(20'000);
    for (auto& [group, number] : all) {
      group = static_cast<std::uint32_t>(random() % 5);
      number = std::ldexp(static_cast<double>(random() % 2001) - 1000, static_cast<int>(random() % 20));
    }
    std::ranges::sort(all, {}, [&](const auto& one) { return greatest ? -one.number : one.number; });
    static_cast<void>(expect_medians(all, 5, 11, 4'000));
  }
}

// What an answer lists of a group: how many numbers are in it, how many of these lie below its bucket, and those in it.
template <typename T>
void list_answers(std::span<const grouped_number<T>> some, std::size_t groups, far_medians<T>& medians) {
  for (std::size_t group = 0; group < groups; ++group) {
    const group_buckets in = medians.buckets_of(group);
    std::uint64_t count = 0;
    std::uint64_t below = 0;
    std::map<std::uint64_t, std::uint16_t> listed;
    for (const auto& one : some) {
      if (one.group != group) continue;
      ++count;
      const std::uint64_t key = key_of(one.number);
      below += key < in.lowest ? 1 : 0;
      if (key >= in.lowest && (key - in.lowest) >> in.shift == 0) ++listed[key];
    }
    std::vector<T> numbers;
    std::vector<std::uint16_t> times;
    for (const auto& [key, often] : listed) {
      numbers.push_back(number_with_key<T>(key));
      times.push_back(often);
    }
    if (count == 0) continue;
    medians.add_listed(group, count, below, numbers.size(), reinterpret_cast<const std::byte*>(numbers.data()),
                       reinterpret_cast<const std::byte*>(times.data()));
  }
}

// After any number of passes that count, one that lists finds all; part of the numbers are listed here.
TEST(far_medians, a_list_ends_the_search) {
  std::mt19937_64 random(11);
  constexpr std::size_t groups = 4;
  std::vector<grouped_number<double>> all(20'000);
  std::vector<std::vector<double>> expected(groups + 1);
  for (auto& [group, number] : all) {
    group = static_cast<std::uint32_t>(random() % groups);
    number = group == 3 ? static_cast<double>(random() % 3) - 1 : static_cast<double>(random() % 1'000'003) / 7;
    expected[group].push_back(number);
  }
  const std::span<const grouped_number<double>> some(all);
  std::vector<std::uint32_t> group_of;
  std::vector<double> numbers;
  for (const auto& one : some.subspan(15'000)) {
    group_of.push_back(one.group);
    numbers.push_back(one.number);
  }
  const auto [least, greatest] = std::ranges::minmax_element(all, {}, &grouped_number<double>::number);
  const reduced_numbers known{
      .count = all.size(), .least = bits_of(least->number), .greatest = bits_of(greatest->number)};
  for (int counted = 1; counted < 6; ++counted) {
    far_medians<double> found{summary<double>(known), 16};
    EXPECT_EQ(found.left_to_list(), 0u) << "no group is known yet";
    bool is_left = true;
    for (int pass = 0; pass < counted && is_left; ++pass) {
      answer_about(some.first(15'000), groups, 16, found);
      found.add(group_of, numbers, {}, no_group);
      is_left = found.next();
    }
    if (is_left) {
      const std::uint64_t left = found.left_to_list();
      EXPECT_GT(left, 0u);
      EXPECT_LE(left, all.size());
      // What was begun and given up changes nothing.
      found.begin_list();
      list_answers(some.first(5'000), groups, found);
      found.cancel_list();
      EXPECT_EQ(found.left_to_list(), left);
      found.begin_list();
      list_answers(some.first(10'000), groups, found);
      list_answers(some.subspan(10'000, 5'000), groups, found);
      found.add(group_of, numbers, {}, no_group);
      EXPECT_FALSE(found.is_list_too_long());
      found.end_list();
    }
    for (std::size_t group = 0; group <= groups; ++group) {
      EXPECT_EQ(found.of(group), sorted_median(expected[group])) << group << " after " << counted;
    }
  }
}

// From pass to pass, also where the two in the middle of a group lie in different buckets; the first group is empty.
template <typename T>
void expect_less_and_less_left() {
  std::vector<grouped_number<T>> all;
  for (int i = 0; i < 8'192; ++i) all.push_back({1, static_cast<T>((i - (std::is_integral_v<T> ? 0 : 4'096)) * 2'048)});
  const reduced_numbers known{
      .count = all.size(), .least = bits_of(all.front().number), .greatest = bits_of(all.back().number)};
  far_medians<T> found{summary<T>(known), 16};
  std::uint64_t left = all.size();
  for (bool is_left = true; is_left;) {
    answer_about(std::span<const grouped_number<T>>(all), 2, 16, found);
    is_left = found.next();
    EXPECT_LE(found.left_to_list(), left);
    left = found.left_to_list();
  }
  EXPECT_EQ(left, 0u);
}
TEST(far_medians, have_less_and_less_left_to_list) {
  expect_less_and_less_left<std::int64_t>();
  expect_less_and_less_left<double>();
}

// A far tier that lists nothing, or something else, leads to no endless search.
TEST(far_medians, a_list_that_is_wrong_ends_the_search_too) {
  std::vector<grouped_number<std::int64_t>> all;
  for (std::int64_t i = 0; i < 1'000; ++i) all.push_back({0, i * i});
  const reduced_numbers known{.count = 1'000, .least = 0, .greatest = bits_of(all.back().number)};
  for (const bool lists : {false, true}) {
    far_medians<std::int64_t> found{summary<std::int64_t>(known), 8};
    answer_about(std::span<const grouped_number<std::int64_t>>(all), 1, 8, found);
    ASSERT_TRUE(found.next());
    found.begin_list();
    const std::int64_t number = 77;
    const std::uint16_t times = 1;
    if (lists) {
      found.add_listed(0, 1'000, 5, 1, reinterpret_cast<const std::byte*>(&number),
                       reinterpret_cast<const std::byte*>(&times));
    }
    found.end_list();
    EXPECT_EQ(found.of(0).has_value(), lists);
  }
}

TEST(far_medians, of_zeros_with_signs_and_of_nothing) {
  std::vector<grouped_number<double>> all = {{0, -0.0}, {0, 0.0}, {0, -0.0}, {1, -1.5}, {1, 2.5}, {3, 7}};
  static_cast<void>(expect_medians(all, 5, 8));
  static_cast<void>(expect_medians(std::vector<grouped_number<std::uint8_t>>(), 2, 8));
}

}  // namespace
}  // namespace far::detail
