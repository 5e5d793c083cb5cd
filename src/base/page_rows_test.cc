// Questions about rows, beside a plain loop over them.
#include "base/page_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "base/page_reduction.h"
#include "tests/support/page_questions.h"

namespace far {
namespace {

using detail::bits_of;
using detail::keyed_rows;
using detail::number_type;

constexpr std::size_t rows = page_bytes;  // a page of keys of one byte

// Two columns of keys, of 1 and of 2 bytes, and one of numbers.
template <typename T>
class page_rows : public testing_support::page_questions<T> {
 protected:
  page_rows() : numbers_(this->some_numbers(rows, 3)) {
    std::mt19937_64 random(5);
    for (std::size_t i = 0; i < rows; ++i) {
      first_.push_back(static_cast<std::int8_t>(random() % 9) - 4);
      second_.push_back(static_cast<std::int16_t>(random() % 7 + 1000));
    }
  }

  // Keys from -3 to 3, and from 1001 to 1005.
  static keyed_rows keys() {
    keyed_rows asked{.rows = rows, .keys = 2};
    asked.key[0] = {bits_of(std::int8_t{-3}), 7, number_type::int8};
    asked.key[1] = {bits_of(std::int16_t{1001}), 3, number_type::int16};
    return asked;
  }
  static reduction question(const keyed_rows& asked) {
    return {.type = detail::number_type_of<T>(),
            .lowest = bits_of(T{3}),
            .highest = bits_of(T{100}),
            .kind = reduction_kind::of_rows,
            .groups = 21,
            .rows = &asked};
  }
  // 21, or more: none.
  [[nodiscard]] std::size_t group_of(std::size_t row) const {
    const int first = first_[row] + 3;
    const int second = second_[row] - 1001;
    if (first < 0 || first >= 7 || second < 0 || second >= 3) return 21;
    return static_cast<std::size_t>(first * 3 + second);
  }

  template <typename Number>
  static void add_pages(const std::vector<Number>& of, std::vector<const std::byte*>& to) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(of.data());
    for (std::size_t at = 0; at < of.size() * sizeof(Number); at += page_bytes) to.push_back(bytes + at);
  }
  // In another order than in memory, so that each page is found by itself.
  [[nodiscard]] std::vector<const std::byte*> pages(bool with_numbers = true) const {
    std::vector<const std::byte*> all;
    add_pages(first_, all);
    add_pages(second_, all);
    if (with_numbers) add_pages(numbers_, all);
    return all;
  }

  static std::vector<std::byte> found(const reduction& how, const std::vector<const std::byte*>& pages) {
    EXPECT_TRUE(is_valid(how));
    EXPECT_EQ(pages_of_rows(how), pages.size());
    std::vector<std::byte> to(found_bytes(how) + 8, testing_support::untouched);
    find_of_rows(how, pages, to.data());
    EXPECT_EQ(std::count(to.end() - 8, to.end(), testing_support::untouched), 8);
    return to;
  }
  template <typename Value>
  static Value take(std::span<const std::byte>& from) {
    Value value;
    std::memcpy(&value, from.data(), sizeof value);
    from = from.subspan(sizeof value);
    return value;
  }

  std::vector<std::int8_t> first_;
  std::vector<std::int16_t> second_;
  std::vector<T> numbers_;
};

TYPED_TEST_SUITE(page_rows, testing_support::all_number_types);

__extension__ typedef __int128 wide_integer;

TYPED_TEST(page_rows, all_that_is_wanted_is_as_in_a_plain_loop) {
  using T = TypeParam;
  using sum_type = std::conditional_t<std::is_floating_point_v<T>, double,
                                      std::conditional_t<sizeof(T) == 8, wide_integer, std::int64_t>>;
  for (unsigned wanted = 1; wanted < 16; ++wanted) {
    keyed_rows asked = this->keys();
    asked.wants_sums = (wanted & 1) != 0;
    asked.wants_least = (wanted & 2) != 0;
    asked.wants_greatest = (wanted & 4) != 0;
    asked.wants_counts = (wanted & 8) != 0;
    const reduction how = this->question(asked);
    if (found_bytes_of_rows(how) > detail::most_group_bytes) continue;
    const std::vector<std::byte> answer = this->found(how, this->pages());
    ASSERT_TRUE(is_possible_of_rows(how, answer.data()));
    std::array<sum_type, 22> sums{};
    std::array<sum_type, 22> of_page{};
    std::array<T, 22> least{};
    std::array<T, 22> greatest{};
    std::array<std::uint16_t, 22> of_rows{};
    std::array<std::uint16_t, 22> counts{};
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t group = this->group_of(i);
      const T number = this->numbers_[i];
      ++of_rows[group];
      if (number >= T{3} && number <= T{100}) {
        of_page[group] += static_cast<sum_type>(number);
        least[group] = counts[group] == 0 ? number : std::min(least[group], number);
        greatest[group] = counts[group] == 0 ? number : std::max(greatest[group], number);
        ++counts[group];
      }
      if ((i + 1) % this->on_a_page != 0) continue;
      for (std::size_t g = 0; g < 22; ++g) sums[g] += of_page[g];
      of_page = {};
    }
    std::span<const std::byte> rest = answer;
    const auto expect = [&]<typename Value>(bool is_wanted, const std::array<Value, 22>& expected) {
      for (std::size_t group = 0; is_wanted && group < 21; ++group) {
        ASSERT_TRUE(this->template take<Value>(rest) == expected[group]) << wanted << " " << group;
      }
    };
    expect(asked.wants_sums, sums);
    expect(asked.wants_least, least);
    expect(asked.wants_greatest, greatest);
    expect(true, of_rows);
    expect(asked.wants_counts, counts);
    EXPECT_LT(rest.size(), 8u + 8u);
  }
}

TYPED_TEST(page_rows, counts_and_sums_of_more_rows_than_there_are_are_not_possible) {
  using T = TypeParam;
  using sum_type = std::conditional_t<std::is_floating_point_v<T>, double,
                                      std::conditional_t<sizeof(T) == 8, wide_integer, std::int64_t>>;
  keyed_rows asked = this->keys();
  asked.wants_sums = asked.wants_counts = true;
  const reduction how = this->question(asked);
  const std::vector<std::byte> answer = this->found(how, this->pages());
  const std::size_t rows_at = 21 * sizeof(sum_type);
  const std::size_t counts_at = rows_at + 21 * sizeof(std::uint16_t);
  const auto is_possible = [&](std::size_t at, const auto& value) {
    std::vector<std::byte> changed = answer;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return is_possible_of_rows(how, changed.data());
  };
  std::uint16_t of_last_group = 0;
  std::memcpy(&of_last_group, answer.data() + counts_at - sizeof of_last_group, sizeof of_last_group);
  const std::size_t last_count_at = counts_at + 20 * sizeof(std::uint16_t);
  EXPECT_TRUE(is_possible(last_count_at, of_last_group));
  EXPECT_FALSE(is_possible(last_count_at, static_cast<std::uint16_t>(of_last_group + 1))) << "more than rows";
  EXPECT_FALSE(is_possible(rows_at, std::uint16_t{rows})) << "more than there are";
  if constexpr (std::is_floating_point_v<T>) {
    EXPECT_TRUE(is_possible(0, std::numeric_limits<double>::infinity()));
  } else {
    EXPECT_FALSE(is_possible(0, sum_type{-1})) << "of numbers from 3 on";
    EXPECT_FALSE(is_possible(0, sum_type{100 * rows})) << "of numbers to 100, in one of 21 groups";
    EXPECT_FALSE(is_possible(0, sum_type{1} << (8 * sizeof(sum_type) - 2)));
  }
}

// Of 21 groups, or of all rows, whose buckets begin at different numbers.
template <typename T>
keyed_rows with_buckets(keyed_rows asked, std::size_t groups) {
  asked.wants_least = asked.wants_greatest = asked.wants_counts = true;
  asked.buckets = 4;
  for (std::size_t group = 0; group < groups; ++group) {
    const auto first = static_cast<T>(5 + 3 * group);
    const std::uint64_t width = detail::key_of(static_cast<T>(first + T{8})) - detail::key_of(first);
    asked.buckets_of[group] = {detail::key_of(first), static_cast<std::uint8_t>(std::bit_width(width) - 1)};
  }
  return asked;
}

TYPED_TEST(page_rows, buckets_are_as_in_a_plain_loop) {
  using T = TypeParam;
  for (const bool has_keys : {true, false}) {
    const std::size_t groups = has_keys ? 21 : 1;
    keyed_rows asked = with_buckets<T>(has_keys ? this->keys() : keyed_rows{.rows = rows}, groups);
    reduction how = this->question(asked);
    how.groups = static_cast<std::uint8_t>(groups);
    std::vector<const std::byte*> pages;
    if (has_keys) {
      pages = this->pages();
    } else {
      this->add_pages(this->numbers_, pages);
    }
    const std::vector<std::byte> answer = this->found(how, pages);
    ASSERT_TRUE(is_possible_of_rows(how, answer.data()));
    struct one_group {
      std::uint16_t rows = 0, count = 0;
      std::array<std::uint16_t, 5> places{};
      T least{}, greatest{};
    };
    std::vector<one_group> expected(groups + 1);
    for (std::size_t i = 0; i < rows; ++i) {
      const T number = this->numbers_[i];
      const std::size_t group = has_keys ? this->group_of(i) : 0;
      one_group& to = expected[group];
      ++to.rows;
      if (group == groups || !(number >= T{3} && number <= T{100})) continue;
      ++to.count;
      const detail::group_buckets& in = asked.buckets_of[group];
      const std::uint64_t key = detail::key_of(number);
      if (key < in.lowest) {
        ++to.places[0];
      } else if ((key - in.lowest) >> in.shift < 4) {
        const bool is_first = to.places[1] + to.places[2] + to.places[3] + to.places[4] == 0;
        ++to.places[1 + ((key - in.lowest) >> in.shift)];
        to.least = is_first ? number : std::min(to.least, number);
        to.greatest = is_first ? number : std::max(to.greatest, number);
      }
    }
    std::span<const std::byte> rest = answer;
    const auto expect = [&](bool is_wanted, auto one_group::* member) {
      for (std::size_t group = 0; is_wanted && group < groups; ++group) {
        const auto got = this->template take<std::remove_cvref_t<decltype(expected[0].*member)>>(rest);
        ASSERT_TRUE(got == expected[group].*member) << has_keys << " " << group;
      }
    };
    expect(asked.wants_least, &one_group::least);
    expect(asked.wants_greatest, &one_group::greatest);
    expect(true, &one_group::rows);
    expect(asked.wants_counts, &one_group::count);
    expect(true, &one_group::places);
    EXPECT_LT(rest.size(), 8u + 8u);
  }
}

// Of all rows, by a server that is not sound.
TYPED_TEST(page_rows, buckets_with_more_numbers_than_there_are_are_not_possible) {
  using T = TypeParam;
  const keyed_rows asked = with_buckets<T>({.rows = rows}, 1);
  reduction how = this->question(asked);
  how.groups = 1;
  std::vector<const std::byte*> pages;
  this->add_pages(this->numbers_, pages);
  const std::vector<std::byte> answer = this->found(how, pages);
  const std::size_t places_at = 2 * sizeof(T) + 2 * sizeof(std::uint16_t);
  const auto is_possible = [&](std::size_t at, const auto& value) {
    std::vector<std::byte> changed = answer;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return is_possible_of_rows(how, changed.data());
  };
  std::array<std::uint16_t, 5> places{};
  std::memcpy(places.data(), answer.data() + places_at, sizeof places);
  ASSERT_GT(places[1] + places[2] + places[3] + places[4], 0);
  EXPECT_TRUE(is_possible(places_at, places[0]));
  EXPECT_FALSE(is_possible(places_at, static_cast<std::uint16_t>(places[0] + rows))) << "more than numbers";
  EXPECT_FALSE(is_possible(places_at + 2, std::uint16_t{0xffff}));
  EXPECT_FALSE(is_possible(0, T{3})) << "the least one is below the buckets";
  EXPECT_FALSE(is_possible(0, T{101})) << "or not in the interval";
  EXPECT_FALSE(is_possible(sizeof(T), T{100})) << "the greatest one is above them";
  T greatest{};
  std::memcpy(&greatest, answer.data() + sizeof(T), sizeof greatest);
  T least{};
  std::memcpy(&least, answer.data(), sizeof least);
  if (least != greatest) {
    std::vector<std::byte> swapped = answer;
    std::memcpy(swapped.data(), &greatest, sizeof greatest);
    std::memcpy(swapped.data() + sizeof greatest, &least, sizeof least);
    EXPECT_FALSE(is_possible_of_rows(how, swapped.data()));
  }
  if constexpr (std::is_floating_point_v<T>) {
    EXPECT_FALSE(is_possible(0, std::numeric_limits<T>::quiet_NaN()));
  }
}

// Each group has one bucket, which lists what is in it.
template <typename T>
keyed_rows with_lists(keyed_rows asked, std::size_t groups, std::uint8_t listed) {
  asked = with_buckets<T>(asked, groups);
  asked.wants_least = asked.wants_greatest = false;
  asked.buckets = 1;
  asked.listed = listed;
  for (std::size_t group = 0; group < groups; ++group) asked.buckets_of[group].shift += 2;
  return asked;
}

TYPED_TEST(page_rows, lists_are_as_in_a_plain_loop) {
  using T = TypeParam;
  for (const bool has_keys : {true, false}) {
    const std::size_t groups = has_keys ? 21 : 1;
    std::vector<std::map<std::uint64_t, std::uint16_t>> expected(groups);
    keyed_rows asked = with_lists<T>(has_keys ? this->keys() : keyed_rows{.rows = rows}, groups, 60);
    for (std::size_t i = 0; i < rows; ++i) {
      const T number = this->numbers_[i];
      const std::size_t group = has_keys ? this->group_of(i) : 0;
      if (group == groups || !(number >= T{3} && number <= T{100})) continue;
      const detail::group_buckets& in = asked.buckets_of[group];
      const std::uint64_t key = detail::key_of(number);
      if (key >= in.lowest && (key - in.lowest) >> in.shift == 0) ++expected[group][key];
    }
    std::size_t all = 0;
    for (const auto& one : expected) all += one.size();
    ASSERT_GT(all, 0u);
    for (const bool has_room : {true, false}) {
      asked.listed = static_cast<std::uint8_t>(std::min<std::size_t>(has_room ? all : all - 1, 60));
      if (asked.listed == 0) continue;
      reduction how = this->question(asked);
      how.groups = static_cast<std::uint8_t>(groups);
      std::vector<const std::byte*> pages = this->pages();
      if (!has_keys) pages.erase(pages.begin(), pages.begin() + 3);
      const std::vector<std::byte> answer = this->found(how, pages);
      ASSERT_TRUE(is_possible_of_rows(how, answer.data()));
      std::span<const std::byte> rest = answer;
      rest = rest.subspan(groups * 4 * sizeof(std::uint16_t));  // rows, numbers, two places
      const bool is_whole = all <= asked.listed;
      for (const auto& one : expected) {
        ASSERT_EQ(this->template take<std::uint16_t>(rest), is_whole ? one.size() : 0u) << has_keys;
      }
      std::span<const std::byte> times = rest.subspan(asked.listed * sizeof(T));
      for (const auto& one : expected) {
        for (const auto& [key, often] : one) {
          if (!is_whole) continue;
          ASSERT_EQ(this->template take<T>(rest), detail::number_with_key<T>(key));
          ASSERT_EQ(this->template take<std::uint16_t>(times), often);
        }
      }
      // Behind them are the bytes that the answer has not.
      const auto is_zero = [](std::byte one) { return one == std::byte{}; };
      EXPECT_TRUE(std::ranges::all_of(times.first(times.size() - 8), is_zero));
    }
  }
}

TYPED_TEST(page_rows, lists_of_what_cannot_be_are_not_possible) {
  using T = TypeParam;
  const keyed_rows asked = with_lists<T>({.rows = rows}, 1, 90);
  reduction how = this->question(asked);
  how.groups = 1;
  std::vector<const std::byte*> pages;
  this->add_pages(this->numbers_, pages);
  const std::vector<std::byte> answer = this->found(how, pages);
  ASSERT_TRUE(is_possible_of_rows(how, answer.data()));
  const std::size_t in_bucket_at = 3 * sizeof(std::uint16_t);
  const std::size_t different_at = 4 * sizeof(std::uint16_t);
  const std::size_t numbers_at = 5 * sizeof(std::uint16_t);
  const std::size_t times_at = numbers_at + 90 * sizeof(T);
  const auto is_possible = [&](std::size_t at, const auto& value) {
    std::vector<std::byte> changed = answer;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return is_possible_of_rows(how, changed.data());
  };
  std::uint16_t different = 0;
  std::memcpy(&different, answer.data() + different_at, sizeof different);
  ASSERT_GE(different, 2) << "numbers of every type differ here, and are few enough to be listed";
  EXPECT_FALSE(is_possible(different_at, std::uint16_t{91})) << "more than there is room for";
  EXPECT_FALSE(is_possible(different_at, static_cast<std::uint16_t>(different - 1))) << "not all";
  EXPECT_FALSE(is_possible(in_bucket_at, std::uint16_t{0})) << "more than there are";
  EXPECT_FALSE(is_possible(numbers_at, T{2})) << "not in the interval";
  EXPECT_FALSE(is_possible(numbers_at, T{99})) << "not in the bucket, or not in order";
  T second{};
  std::memcpy(&second, answer.data() + numbers_at + sizeof(T), sizeof second);
  EXPECT_FALSE(is_possible(numbers_at, second)) << "one number twice";
  EXPECT_FALSE(is_possible(times_at, std::uint16_t{0}));
  EXPECT_FALSE(is_possible(times_at, std::uint16_t{0xffff}));
  if constexpr (std::is_floating_point_v<T>) {
    EXPECT_FALSE(is_possible(numbers_at, std::numeric_limits<T>::quiet_NaN()));
  }
}

TYPED_TEST(page_rows, without_numbers_rows_are_counted) {
  const keyed_rows asked = this->keys();
  const std::vector<std::byte> answer = this->found(this->question(asked), this->pages(false));
  EXPECT_TRUE(is_possible_of_rows(this->question(asked), answer.data()));
  std::array<std::uint16_t, 22> expected{};
  for (std::size_t i = 0; i < rows; ++i) ++expected[this->group_of(i)];
  EXPECT_EQ(std::memcmp(answer.data(), expected.data(), 21 * sizeof expected[0]), 0);
}

class page_rows_questions : public testing::Test {
 protected:
  static reduction question(const keyed_rows& asked, std::uint8_t groups) {
    return {.type = number_type::float64,
            .highest = ~std::uint64_t{0},
            .kind = reduction_kind::of_rows,
            .groups = groups,
            .rows = &asked};
  }
};

TEST_F(page_rows_questions, that_make_no_sense_are_not_valid) {
  keyed_rows good{.rows = 4096, .keys = 1, .wants_sums = true};
  good.key[0] = {0, 24, number_type::uint8};
  ASSERT_TRUE(is_valid(question(good, 24)));
  EXPECT_FALSE(is_valid(question(good, 23))) << "not the product of the keys";
  reduction nothing = question(good, 24);
  nothing.rows = nullptr;
  EXPECT_FALSE(is_valid(nothing));
  const auto expect_bad = [&](const auto& change, std::uint8_t groups = 24) {
    keyed_rows bad = good;
    change(bad);
    EXPECT_FALSE(is_valid(question(bad, groups)));
  };
  expect_bad([](keyed_rows& one) { one.rows = 4095; });
  expect_bad([](keyed_rows& one) { one.rows = 0; });
  expect_bad([](keyed_rows& one) { one.rows = 2 * 4096; });  // 2 pages of keys, and 16 of numbers
  expect_bad([](keyed_rows& one) { one.rows = 512; });       // a part of a page of keys
  expect_bad([](keyed_rows& one) { one.keys = 0; });
  expect_bad([](keyed_rows& one) { one.keys = 5; });
  expect_bad([](keyed_rows& one) { one.key[0].type = number_type::float32; });
  expect_bad([](keyed_rows& one) { one.key[0].type = static_cast<number_type>(77); });
  expect_bad([](keyed_rows& one) { one.key[0].count = 0; }, 0);
  expect_bad([](keyed_rows& one) { one.key[0].count = 64; }, 64);
  expect_bad([](keyed_rows& one) { one.key[0].count = 256 + 24; });
  expect_bad([](keyed_rows& one) { one.wants_least = one.wants_greatest = one.wants_counts = true; });  // too long
  expect_bad([](keyed_rows& one) { one.buckets = 2; });                                                 // with sums
  const auto expect_bad_buckets = [&](const auto& change, std::uint8_t groups = 24) {
    expect_bad(
        [&](keyed_rows& one) {
          one.wants_sums = false;
          one.buckets = 10;
          change(one);
        },
        groups);
  };
  keyed_rows buckets = good;
  buckets.wants_sums = false;
  buckets.buckets = 10;
  EXPECT_TRUE(is_valid(question(buckets, 24)));
  expect_bad_buckets([](keyed_rows& one) { one.buckets = 20; });  // too long
  expect_bad_buckets([](keyed_rows& one) { one.listed = 1; });    // of more than one bucket
  expect_bad([](keyed_rows& one) { one.listed = 1; });            // of none
  expect_bad_buckets([](keyed_rows& one) {
    one.buckets = one.listed = 1;
    one.wants_greatest = true;
  });
  expect_bad_buckets([](keyed_rows& one) {
    one.buckets = 1;
    one.listed = 100;  // too long
  });
  expect_bad_buckets([](keyed_rows& one) { one.rows *= 4; });  // 4 pages of keys, and 32 of numbers
  expect_bad_buckets([](keyed_rows& one) { one.buckets_of[23].shift = 64; });
  expect_bad_buckets([](keyed_rows& one) { one.keys = 0; });  // is one group
  expect_bad_buckets([](keyed_rows& one) { one.key[0].count = 32; }, 32);
  keyed_rows long_one{.rows = 65'536, .keys = 1};
  long_one.key[0] = {0, 3, number_type::uint8};
  EXPECT_FALSE(is_valid(question(long_one, 3))) << "more rows than 2 bytes can count";
  long_one.rows /= 2;
  EXPECT_TRUE(is_valid(question(long_one, 3)));
}

TEST_F(page_rows_questions, the_hash_tells_of_each_page_and_its_place) {
  const std::vector<std::uint64_t> some = {1, 2, 3};
  for (const std::vector<std::uint64_t>& other :
       {std::vector<std::uint64_t>{1, 2}, {1, 2, 4}, {0, 2, 3}, {2, 1, 3}, {1, 2, 3, 0}}) {
    EXPECT_NE(hash_of_pages(some), hash_of_pages(other));
  }
}

TEST_F(page_rows_questions, an_answer_proves_all_of_its_pages) {
  keyed_rows asked{.rows = 4096, .keys = 1, .wants_sums = true};
  asked.key[0] = {0, 2, number_type::uint8};
  std::vector<std::uint64_t> bytes(9 * page_bytes / sizeof(std::uint64_t));
  std::vector<const std::byte*> pages;
  std::vector<std::uint64_t> hashes;
  const page_hasher hash(4);
  for (std::size_t i = 0; i < 9; ++i) {
    pages.push_back(reinterpret_cast<const std::byte*>(bytes.data()) + i * page_bytes);
    bytes[i * 512 + 7] = i;
    hashes.push_back(hash_of_pieces(hash, pages.back()));
  }
  const page_reduction whole{.how = question(asked, 2), .hash = &hash};
  std::vector<std::byte> answer(answer_bytes(whole.how));
  answer_about_rows(whole, pages, answer.data());
  std::uint64_t check = 0;
  std::memcpy(&check, answer.data() + answer.size() - sizeof check, sizeof check);
  EXPECT_EQ(check, hash_of_pages(hashes));
}

}  // namespace
}  // namespace far
