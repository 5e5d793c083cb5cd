#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/page_reduction.h"
#include "tests/support/page_questions.h"

namespace far {
namespace {

using detail::bits_of;
using detail::key_of;
using detail::number_type;
using detail::number_type_of;
using detail::number_with_key;

using testing_support::untouched;

template <typename T>
class page_answers : public testing_support::page_questions<T> {
 protected:
  static reduction ask(reduction_kind kind, T lowest, T highest, unsigned shift = 0) {
    return {number_type_of<T>(), bits_of(lowest), bits_of(highest), kind, static_cast<std::uint8_t>(shift)};
  }
  static std::vector<T> listed(const std::vector<std::byte>& answer, std::uint64_t* count) {
    std::memcpy(count, answer.data(), sizeof *count);
    std::vector<T> numbers(*count <= detail::listed_bytes / sizeof(T) ? *count : 0);
    if (!numbers.empty()) {
      std::memcpy(numbers.data(), answer.data() + sizeof *count, numbers.size() * sizeof(T));
    }
    return numbers;
  }
};

TYPED_TEST_SUITE(page_answers, testing_support::all_number_types);

TYPED_TEST(page_answers, keys_have_the_order_of_the_numbers) {
  using T = TypeParam;
  using limits = std::numeric_limits<T>;
  std::vector<T> numbers = {limits::lowest(), limits::max(), T{0}, T{1}, T{100}};
  if constexpr (std::is_floating_point_v<T>) {
    numbers.insert(numbers.end(),
                   {-limits::infinity(), limits::infinity(), limits::denorm_min(), -limits::denorm_min(), T(-1.5)});
    EXPECT_EQ(key_of(T{0}), key_of(-T{0}));
  }
  for (const T a : numbers) {
    EXPECT_EQ(number_with_key<T>(key_of(a)), a);
    for (const T b : numbers) EXPECT_EQ(key_of(a) < key_of(b), a < b) << +a << " " << +b;
  }
}

TYPED_TEST(page_answers, mark_the_numbers_of_the_interval) {
  using T = TypeParam;
  for (const std::size_t size : {std::size_t{1}, std::size_t{9}, this->on_a_page - 3, this->on_a_page}) {
    const std::vector<T> numbers = this->some_numbers(size, size);
    const auto marks = this->found(this->ask(reduction_kind::marks, T{10}, T{90}), numbers);
    ASSERT_EQ(marks.size(), this->on_a_page / 8);
    for (std::size_t i = 0; i < this->on_a_page; ++i) {
      const bool is_marked = (marks[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0};
      EXPECT_EQ(is_marked, i < size && numbers[i] >= T{10} && numbers[i] <= T{90}) << i;
    }
  }
}

TYPED_TEST(page_answers, count_the_numbers_of_buckets) {
  using T = TypeParam;
  const std::vector<T> numbers = this->some_numbers(this->on_a_page - 1, 3);
  const std::uint64_t first = key_of(T{5});
  const std::uint64_t last = key_of(T{117});
  for (unsigned shift = 0; shift < 64; ++shift) {
    const reduction how = this->ask(reduction_kind::counts, T{5}, T{117}, shift);
    ASSERT_EQ(is_valid(how), (last - first) >> shift < 256) << shift;
    if (!is_valid(how)) continue;
    std::map<std::uint64_t, std::uint16_t> expected;
    for (const T one : numbers) {
      if (one >= T{5} && one <= T{117}) ++expected[(key_of(one) - first) >> shift];
    }
    const auto counts = this->found(how, numbers);
    ASSERT_GE(counts.size(), 2 * (((last - first) >> shift) + 1));
    for (std::size_t i = 0; i < counts.size() / 2; ++i) {
      std::uint16_t count = 0;
      std::memcpy(&count, counts.data() + 2 * i, sizeof count);
      EXPECT_EQ(count, expected.contains(i) ? expected[i] : 0) << shift << " " << i;
    }
  }
}

TYPED_TEST(page_answers, of_one_number_everywhere_do_not_overflow) {
  const std::vector<TypeParam> numbers(this->on_a_page, TypeParam{7});
  const auto counts = this->found(this->ask(reduction_kind::counts, TypeParam{7}, TypeParam{7}), numbers);
  std::uint16_t count = 0;
  std::memcpy(&count, counts.data(), sizeof count);
  EXPECT_EQ(count, this->on_a_page);
  std::uint64_t all = 0;
  const auto answer = this->found(this->ask(reduction_kind::distinct, TypeParam{0}, TypeParam{9}), numbers);
  EXPECT_EQ(this->listed(answer, &all), std::vector<TypeParam>{TypeParam{7}});
  static_cast<void>(
      this->listed(this->found(this->ask(reduction_kind::values, TypeParam{0}, TypeParam{9}), numbers), &all));
  EXPECT_EQ(all, this->on_a_page);
}

TYPED_TEST(page_answers, list_what_there_is_room_for) {
  using T = TypeParam;
  constexpr std::size_t most = detail::listed_bytes / sizeof(T);
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, most, most + 1, this->on_a_page}) {
    const std::vector<T> numbers = this->some_numbers(size, size + 1);
    std::vector<T> expected;
    std::set<T> different;
    for (const T one : numbers) {
      if (!(one >= T{1} && one <= T{100})) continue;
      expected.push_back(one);
      different.insert(one);
    }
    std::uint64_t count = 0;
    std::vector<T> got = this->listed(this->found(this->ask(reduction_kind::values, T{1}, T{100}), numbers), &count);
    EXPECT_EQ(count, expected.size());
    EXPECT_EQ(got, expected.size() <= most ? expected : std::vector<T>{});
    got = this->listed(this->found(this->ask(reduction_kind::distinct, T{1}, T{100}), numbers), &count);
    EXPECT_EQ(count, std::min(different.size(), most + 1));
    EXPECT_EQ(got, different.size() <= most ? std::vector<T>(different.begin(), different.end()) : std::vector<T>{});
  }
}

// Of two letters, so that texts recur and overlap themselves.
TEST(page_answer, says_where_a_text_occurs) {
  std::mt19937_64 random(13);
  for (unsigned round = 0; round < 400; ++round) {
    std::string bytes(1 + random() % (round % 2 == 0 ? 40 : page_bytes), 'a');
    for (char& one : bytes) one = random() % (round % 7 + 1) == 0 ? 'b' : 'a';
    std::string text(1 + random() % detail::most_text_bytes, 'a');
    for (char& one : text) one = random() % 5 == 0 ? 'b' : 'a';
    reduction how{number_type::int8, 0, 0, reduction_kind::matches, static_cast<std::uint8_t>(text.size())};
    std::string padded = text;
    padded.resize(detail::most_text_bytes, static_cast<char>(random()));  // what lies behind the text means nothing
    std::memcpy(&how.lowest, padded.data(), 8);
    std::memcpy(&how.highest, padded.data() + 8, 8);
    ASSERT_TRUE(is_valid(how));
    std::vector<std::uint16_t> expected;
    for (std::size_t at = 0; at + text.size() <= bytes.size(); ++at) {
      if (bytes.compare(at, text.size(), text) == 0) expected.push_back(static_cast<std::uint16_t>(at));
    }
    ASSERT_EQ(found_bytes(how), 152u);
    const std::size_t shown = std::min<std::size_t>(bytes.size(), 16);
    std::string ends(32, '\0');
    ends.replace(0, shown, bytes, 0, shown);
    ends.replace(16, shown, bytes, bytes.size() - shown, shown);
    for (const unsigned room : {0u, 1u, 4u, 5u, 56u}) {
      how.groups = static_cast<std::uint8_t>(room);
      ASSERT_TRUE(is_valid(how));
      const std::size_t most = room == 0 ? 56 : room;
      const std::size_t ends_at = 8 + (2 * most + 7) / 8 * 8;
      ASSERT_EQ(found_bytes(how), ends_at + 32);
      std::array<std::byte, 160> to;
      to.fill(untouched);
      find(how, std::as_bytes(std::span(bytes)), to.data());
      EXPECT_EQ(to[ends_at + 32], untouched);
      std::uint64_t count = 0;
      std::memcpy(&count, to.data(), sizeof count);
      EXPECT_EQ(count, expected.size());
      std::vector<std::uint16_t> listed = expected;
      if (expected.size() > most) listed.clear();
      listed.resize((ends_at - 8) / 2);
      EXPECT_EQ(std::memcmp(to.data() + 8, listed.data(), ends_at - 8), 0);
      EXPECT_EQ(std::memcmp(to.data() + ends_at, ends.data(), ends.size()), 0);
    }
    how.groups = 57;
    EXPECT_FALSE(is_valid(how)) << "of no more places";
  }
}

TEST(page_answer, to_a_question_without_sense_is_refused) {
  const auto of = [](reduction_kind kind, auto lowest, decltype(lowest) highest, unsigned shift = 0) {
    return reduction{number_type_of<decltype(lowest)>(), bits_of(lowest), bits_of(highest), kind,
                     static_cast<std::uint8_t>(shift)};
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto counts = reduction_kind::counts;
  EXPECT_TRUE(is_valid(of(counts, 0, 255)));
  EXPECT_FALSE(is_valid(of(counts, 0, 256)));
  EXPECT_TRUE(is_valid(of(counts, 0, 511, 1)));
  EXPECT_FALSE(is_valid(of(counts, 5, 4)));
  EXPECT_FALSE(is_valid(of(counts, nan, 4.0, 60)));
  EXPECT_FALSE(is_valid(of(counts, 0.0, nan, 60)));
  EXPECT_FALSE(is_valid(of(counts, 0, 4, 64)));
  EXPECT_FALSE(is_valid(of(counts, std::uint64_t{0}, ~std::uint64_t{0}))) << "buckets that overflow";
  EXPECT_FALSE(is_valid(of(reduction_kind::marks, 0, 4, 1)));
  EXPECT_TRUE(is_valid(of(reduction_kind::marks, nan, nan)));
  EXPECT_FALSE(is_valid(of(static_cast<reduction_kind>(6), 0, 4)));
  const std::uint8_t letter = 'a';
  EXPECT_TRUE(is_valid(of(reduction_kind::matches, letter, letter, 16)));
  EXPECT_FALSE(is_valid(of(reduction_kind::matches, letter, letter, 0)));
  EXPECT_FALSE(is_valid(of(reduction_kind::matches, letter, letter, 17)));
  EXPECT_FALSE(is_valid(of(reduction_kind::matches, std::uint16_t{'a'}, std::uint16_t{'a'}, 1))) << "not of bytes";
  reduction strange = of(counts, 0, 4);
  strange.type = static_cast<number_type>(10);
  EXPECT_FALSE(is_valid(strange));
}

// Whatever a client asks, about whatever bytes: what is valid is answered within its bounds.
TEST(page_answer, to_any_question_keeps_within_its_bounds) {
  std::mt19937_64 random(11);
  alignas(8) std::array<std::byte, page_bytes> page;
  std::array<std::byte, most_answer_bytes + 16> to;
  const page_hasher hash(5);
  unsigned valid = 0;
  for (unsigned round = 0; round < 20'000; ++round) {
    if (round % 100 == 0) {
      for (std::byte& one : page) one = static_cast<std::byte>(random() % (round % 200 == 0 ? 256 : 3));
    }
    const std::uint64_t lowest = random() >> random() % 64;
    const reduction how{static_cast<number_type>(random() % 11), lowest,
                        random() % 2 == 0 ? random() >> random() % 64 : lowest + random() % 300,
                        static_cast<reduction_kind>(random() % 7), static_cast<std::uint8_t>(random() % 66)};
    const reduction asked = how.kind == reduction_kind::counts || how.kind == reduction_kind::matches
                                ? how
                                : reduction{how.type, how.lowest, how.highest, how.kind};
    if (!is_valid(asked)) continue;
    ++valid;
    ASSERT_LE(answer_bytes(asked), most_answer_bytes);
    to.fill(untouched);
    const std::size_t offset = random() % 64 * 8;
    answer({asked, &hash}, page.data(), {page.data() + offset, page_bytes - offset - random() % 64 * 8}, to.data());
    for (std::size_t i = answer_bytes(asked); i < to.size(); ++i) ASSERT_EQ(to[i], untouched);
  }
  EXPECT_GT(valid, 8'000u);
}

}  // namespace
}  // namespace far
