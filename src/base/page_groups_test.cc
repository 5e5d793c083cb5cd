#include "base/page_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "tests/support/page_questions.h"

namespace far {
namespace {

using detail::bits_of;
using detail::most_groups_of;
using detail::number_type_of;

using testing_support::untouched;

template <typename T>
class page_groups : public testing_support::page_questions<T> {
 protected:
  // All groups, numbers of none among them.
  static std::vector<std::uint8_t> some_groups(std::size_t count, std::size_t groups, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::uint8_t> all(count);
    for (std::uint8_t& one : all) {
      one = static_cast<std::uint8_t>(random() % groups);
      if (random() % 11 == 0) one = random() % 2 == 0 ? detail::no_group : static_cast<std::uint8_t>(groups);
    }
    return all;
  }
  static reduction ask(reduction_kind kind, std::size_t groups, T lowest, T highest) {
    return {number_type_of<T>(), bits_of(lowest), bits_of(highest), kind, 0, static_cast<std::uint8_t>(groups)};
  }
  template <typename Number>
  static Number field(const std::vector<std::byte>& answer, std::size_t at) {
    Number number;
    std::memcpy(&number, answer.data() + at, sizeof number);
    return number;
  }
};

TYPED_TEST_SUITE(page_groups, testing_support::all_number_types);

TYPED_TEST(page_groups, have_sums_counts_and_bounds) {
  using T = TypeParam;
  __extension__ typedef __int128 wide;
  using sum_type =
      std::conditional_t<std::is_floating_point_v<T>, double, std::conditional_t<sizeof(T) == 8, wide, std::int64_t>>;
  for (const std::size_t groups : {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{31}, std::size_t{63}}) {
    const std::vector<T> numbers = this->some_numbers(this->on_a_page - groups, groups);
    const std::vector<std::uint8_t> group_of = this->some_groups(numbers.size(), groups, groups);
    const T lowest{1};
    const T highest = std::numeric_limits<T>::max();
    std::vector<sum_type> sums(groups);
    std::vector<std::uint16_t> counts(groups);
    std::vector<std::array<T, 2>> bounds(groups);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::size_t group = group_of[i];
      if (group >= groups || !(numbers[i] >= lowest)) continue;
      sums[group] += static_cast<sum_type>(numbers[i]);
      bounds[group][0] = counts[group] == 0 ? numbers[i] : std::min(bounds[group][0], numbers[i]);
      bounds[group][1] = counts[group] == 0 ? numbers[i] : std::max(bounds[group][1], numbers[i]);
      ++counts[group];
    }
    for (const reduction_kind kind : {reduction_kind::group_sums, reduction_kind::group_bounds}) {
      const reduction how = this->ask(kind, groups, lowest, highest);
      ASSERT_EQ(is_valid(how), groups <= most_groups_of<T>(kind));
      if (!is_valid(how)) continue;
      const auto got = this->found(how, numbers, group_of.data());
      const std::size_t counts_at = got.size() - detail::group_counts_bytes(groups);
      for (std::size_t group = 0; group < groups; ++group) {
        ASSERT_EQ((this->template field<std::uint16_t>(got, counts_at + 2 * group)), counts[group]);
        if (kind == reduction_kind::group_sums) {
          ASSERT_TRUE((this->template field<sum_type>(got, group * sizeof(sum_type))) == sums[group]) << group;
        } else {
          ASSERT_EQ((this->template field<T>(got, 2 * group * sizeof(T))), bounds[group][0]) << group;
          ASSERT_EQ((this->template field<T>(got, (2 * group + 1) * sizeof(T))), bounds[group][1]) << group;
        }
      }
    }
  }
}

TYPED_TEST(page_groups, are_the_same_when_they_have_been_packed) {
  using T = TypeParam;
  alignas(8) std::array<std::byte, page_bytes> page{};
  const std::vector<T> numbers = this->some_numbers(this->on_a_page, 5);
  std::memcpy(page.data(), numbers.data(), page_bytes);
  const page_hasher hash(4);
  for (std::size_t groups = 1; groups <= most_groups_of<T>(reduction_kind::group_sums); ++groups) {
    const std::size_t count = this->on_a_page - groups % 7;
    const std::vector<std::uint8_t> group_of = this->some_groups(count, groups, groups);
    const reduction how = this->ask(reduction_kind::group_sums, groups, T{0}, T{100});
    const std::size_t bytes = packed_group_bytes(how, count * sizeof(T));
    ASSERT_LE(bytes, most_packed_group_bytes);
    std::vector<std::byte> packed(bytes + 8, untouched);
    pack_groups(how, group_of.data(), count, packed.data());
    ASSERT_EQ(std::count(packed.end() - 8, packed.end(), untouched), 8) << groups;
    const std::span<const std::byte> asked = std::span(page).first(count * sizeof(T));
    std::vector<std::byte> plain(answer_bytes(how));
    std::vector<std::byte> got(answer_bytes(how));
    answer(how, hash, group_of.data(), page.data(), asked, plain.data());
    answer({how, &hash, packed.data()}, page.data(), asked, got.data());
    ASSERT_EQ(got, plain) << groups;
  }
}

TYPED_TEST(page_groups, that_are_none_or_too_many_are_refused) {
  using T = TypeParam;
  for (const reduction_kind kind : {reduction_kind::group_sums, reduction_kind::group_bounds}) {
    const std::size_t most = most_groups_of<T>(kind);
    EXPECT_TRUE(is_valid(this->ask(kind, most, T{0}, T{1})));
    EXPECT_FALSE(is_valid(this->ask(kind, most + 1, T{0}, T{1})));
    EXPECT_FALSE(is_valid(this->ask(kind, 255, T{0}, T{1})));
    EXPECT_FALSE(is_valid(this->ask(kind, 0, T{0}, T{1})));
  }
  EXPECT_FALSE(is_valid(this->ask(reduction_kind::marks, 1, T{0}, T{1})));
}

}  // namespace
}  // namespace far
