// What a memory server may say about a page, and what it may not: nothing that it says is used before it was looked at.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "base/page_reduction.h"
#include "tests/support/page_questions.h"

namespace far {
namespace {

using detail::bits_of;
using detail::number_type_of;

template <typename T>
class page_possible : public testing_support::page_questions<T> {
 protected:
  static reduction ask(reduction_kind kind, T lowest, T highest, unsigned groups = 0) {
    return {number_type_of<T>(), bits_of(lowest), bits_of(highest), kind, 0, static_cast<std::uint8_t>(groups)};
  }
  // The right answer, with these bytes of it changed.
  template <typename Value>
  bool is_possible_with(const reduction& how, const std::vector<T>& numbers, std::size_t at, Value value,
                        const std::uint8_t* groups = nullptr) {
    std::vector<std::byte> answer(found_bytes(how));
    find(how, std::as_bytes(std::span(numbers)), answer.data(), groups);
    EXPECT_TRUE(is_possible_of_page(how, numbers.size() * sizeof(T), answer.data())) << "what is right is possible";
    EXPECT_LE(at + sizeof value, answer.size());
    std::memcpy(answer.data() + at, &value, sizeof value);
    return is_possible_of_page(how, numbers.size() * sizeof(T), answer.data());
  }
};

TYPED_TEST_SUITE(page_possible, testing_support::all_number_types);

TYPED_TEST(page_possible, summaries) {
  using T = TypeParam;
  const std::vector<T> numbers = {T{10}, T{20}, T{30}, T{99}};
  const reduction how = this->ask(reduction_kind::summary, T{5}, T{50});
  using at = reduced_numbers;
  EXPECT_FALSE(this->is_possible_with(how, numbers, offsetof(at, count), std::uint64_t{5})) << "more than there are";
  EXPECT_FALSE(this->is_possible_with(how, numbers, offsetof(at, least), T{4}));
  EXPECT_FALSE(this->is_possible_with(how, numbers, offsetof(at, greatest), T{51}));
  EXPECT_FALSE(this->is_possible_with(how, numbers, offsetof(at, least), T{31})) << "above the greatest";
  EXPECT_TRUE(this->is_possible_with(how, numbers, offsetof(at, least), T{9})) << "possible, and wrong";
  if constexpr (std::is_integral_v<T>) {
    EXPECT_FALSE(this->is_possible_with(how, numbers, offsetof(at, sum), std::uint64_t{29}));
    EXPECT_FALSE(this->is_possible_with(how, numbers, offsetof(at, sum), std::uint64_t{91}));
    EXPECT_FALSE(this->is_possible_with(how, numbers, offsetof(at, upper_sum), ~std::uint64_t{0}));
  } else {
    EXPECT_FALSE(this->is_possible_with(how, numbers, offsetof(at, least), std::numeric_limits<T>::quiet_NaN()));
  }
  const reduction none = this->ask(reduction_kind::summary, T{50}, T{5});
  EXPECT_FALSE(this->is_possible_with(none, numbers, offsetof(at, count), std::uint64_t{1})) << "of an empty interval";
}

TYPED_TEST(page_possible, marks) {
  using T = TypeParam;
  const reduction how = this->ask(reduction_kind::marks, T{10}, T{90});
  for (const std::size_t size : {std::size_t{1}, std::size_t{8}, std::size_t{61}, this->on_a_page - 1}) {
    const std::vector<T> numbers = this->some_numbers(size, size);
    for (const std::size_t behind : {size, std::min(size + 8, this->on_a_page - 1), this->on_a_page - 1}) {
      std::vector<std::byte> answer(found_bytes(how));
      find(how, std::as_bytes(std::span(numbers)), answer.data());
      const std::byte bit = answer[behind / 8] | static_cast<std::byte>(1u << behind % 8);
      EXPECT_FALSE(this->is_possible_with(how, numbers, behind / 8, bit)) << size << " " << behind;
    }
    EXPECT_TRUE(this->is_possible_with(how, numbers, 0, std::byte{1})) << "the first one";
  }
  const std::vector<T> all = this->some_numbers(this->on_a_page, 4);
  EXPECT_TRUE(this->is_possible_with(how, all, found_bytes(how) - 1, std::byte{0xff}));
}

TYPED_TEST(page_possible, counts) {
  using T = TypeParam;
  const std::vector<T> numbers = {T{10}, T{20}, T{30}};
  const reduction how = this->ask(reduction_kind::counts, T{10}, T{10});
  EXPECT_TRUE(this->is_possible_with(how, numbers, 0, std::uint16_t{3}));
  EXPECT_FALSE(this->is_possible_with(how, numbers, 0, std::uint16_t{4}));
}

TYPED_TEST(page_possible, lists) {
  using T = TypeParam;
  constexpr std::size_t first = sizeof(std::uint64_t);
  constexpr std::size_t most = detail::listed_bytes / sizeof(T);
  const std::vector<T> numbers = {T{10}, T{20}, T{20}, T{99}};
  for (const reduction_kind kind : {reduction_kind::values, reduction_kind::distinct}) {
    const reduction how = this->ask(kind, T{5}, T{50});
    EXPECT_FALSE(this->is_possible_with(how, numbers, 0, std::uint64_t{5})) << "more than there are";
    EXPECT_FALSE(this->is_possible_with(how, numbers, 0, ~std::uint64_t{0}));
    EXPECT_FALSE(this->is_possible_with(how, numbers, first, T{4}));
    EXPECT_FALSE(this->is_possible_with(how, numbers, first, T{51}));
    EXPECT_EQ(this->is_possible_with(how, numbers, first, T{20}), kind == reduction_kind::values) << "in order";
  }
  const std::vector<T> many(this->on_a_page, T{7});
  const reduction different = this->ask(reduction_kind::distinct, T{5}, T{50});
  EXPECT_TRUE(this->is_possible_with(different, many, 0, std::uint64_t{most + 1})) << "more than there is room for";
  EXPECT_FALSE(this->is_possible_with(different, many, 0, std::uint64_t{most + 2}));
}

TYPED_TEST(page_possible, groups) {
  using T = TypeParam;
  const std::vector<T> numbers = {T{10}, T{20}, T{30}};
  const std::array<std::uint8_t, 3> groups = {0, 1, 1};
  for (const reduction_kind kind : {reduction_kind::group_sums, reduction_kind::group_bounds}) {
    const reduction how = this->ask(kind, T{5}, T{50}, 2);
    const std::size_t counts = found_bytes(how) - detail::group_counts_bytes(2);
    EXPECT_FALSE(this->is_possible_with(how, numbers, counts, std::uint16_t{2}, groups.data())) << "four in all";
  }
  const reduction bounds = this->ask(reduction_kind::group_bounds, T{5}, T{50}, 2);
  EXPECT_FALSE(this->is_possible_with(bounds, numbers, 0, T{4}, groups.data()));
  EXPECT_FALSE(this->is_possible_with(bounds, numbers, 0, T{11}, groups.data())) << "above its greatest";
  EXPECT_FALSE(this->is_possible_with(bounds, numbers, sizeof(T), T{51}, groups.data()));
  if constexpr (std::is_integral_v<T>) {
    const reduction sums = this->ask(reduction_kind::group_sums, T{5}, T{50}, 2);
    EXPECT_FALSE(this->is_possible_with(sums, numbers, 0, std::uint64_t{51}, groups.data()));
    EXPECT_FALSE(this->is_possible_with(sums, numbers, 0, std::uint64_t{4}, groups.data()));
  }
}

// A place beyond the characters would be one beyond the page, or the container.
TEST(page_possible_matches, lie_within_the_characters) {
  reduction how{detail::number_type::uint8, 0, 0, reduction_kind::matches, 2};
  std::memcpy(&how.lowest, "ab", 2);
  constexpr std::string_view text = "ab ab ab";
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  for (const std::uint8_t room : {std::uint8_t{0}, std::uint8_t{4}}) {
    how.groups = room;
    std::vector<std::byte> right(found_bytes(how));
    find(how, bytes, right.data());
    ASSERT_TRUE(is_possible_of_page(how, bytes.size(), right.data()));
    const auto is_possible_with = [&](std::size_t at, auto value) {
      std::vector<std::byte> changed = right;
      std::memcpy(changed.data() + at, &value, sizeof value);
      return is_possible_of_page(how, bytes.size(), changed.data());
    };
    EXPECT_FALSE(is_possible_with(0, std::uint64_t{8})) << "there are seven places";
    EXPECT_EQ(is_possible_with(0, std::uint64_t{7}), room == 4) << "that are listed only where there is room";
    EXPECT_FALSE(is_possible_with(12, std::uint16_t{7})) << "the text would end behind them";
    EXPECT_FALSE(is_possible_with(12, std::uint16_t{65'535}));
    EXPECT_FALSE(is_possible_with(10, std::uint16_t{0})) << "twice";
    EXPECT_FALSE(is_possible_with(10, std::uint16_t{6})) << "in order";
    EXPECT_TRUE(is_possible_with(10, std::uint16_t{2})) << "possible, and wrong";
    EXPECT_FALSE(is_possible_of_page(how, 1, right.data())) << "fewer characters than the text has";
  }
}

}  // namespace
}  // namespace far
