#include "base/page_reduction.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/page_reduction_lanes.h"

namespace far {
namespace {

using detail::bits_of;
using detail::number_of;
using detail::number_type_of;

template <typename T>
class page_reductions : public testing::Test {
 protected:
  static reduction all_of(T lowest = std::numeric_limits<T>::lowest(), T highest = std::numeric_limits<T>::max()) {
    return {number_type_of<T>(), bits_of(lowest), bits_of(highest)};
  }
  static reduced_numbers reduce_vector(const reduction& how, const std::vector<T>& numbers) {
    return reduce(how, std::as_bytes(std::span(numbers)));
  }
  static __int128 sum_of(const reduced_numbers& found) {
    return static_cast<__int128>(static_cast<unsigned __int128>(found.upper_sum) << 64 | found.sum);
  }
  // The same in the plainest way.
  static void expect_right(const reduction& how, const std::vector<T>& numbers, const reduced_numbers& found) {
    const T lowest = number_of<T>(how.lowest);
    const T highest = number_of<T>(how.highest);
    std::uint64_t count = 0;
    __int128 sum = 0;
    double real_sum = 0;
    T least = highest;
    T greatest = lowest;
    for (const T number : numbers) {
      if (!(number >= lowest && number <= highest)) continue;
      ++count;
      sum += static_cast<__int128>(number);
      real_sum += static_cast<double>(number);
      least = std::min(least, number);
      greatest = std::max(greatest, number);
    }
    ASSERT_EQ(found.count, count);
    if constexpr (std::is_floating_point_v<T>) {
      EXPECT_NEAR(number_of<double>(found.sum), real_sum, 1e-9 * (std::abs(real_sum) + 1));
    } else {
      EXPECT_TRUE(sum_of(found) == sum);
    }
    if (count == 0) return;
    EXPECT_EQ(number_of<T>(found.least), least);
    EXPECT_EQ(number_of<T>(found.greatest), greatest);
  }
};

using all_types = testing::Types<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t,
                                 std::uint32_t, std::uint64_t, float, double>;
TYPED_TEST_SUITE(page_reductions, all_types);

TYPED_TEST(page_reductions, say_what_the_plainest_loop_says) {
  std::mt19937_64 random(7);
  for (const std::size_t size : {0u, 1u, 7u, 8u, 9u, 100u, 512u, 4096u}) {
    std::vector<TypeParam> numbers(size);
    for (TypeParam& number : numbers) {
      const std::uint64_t bits = random();
      if constexpr (std::is_floating_point_v<TypeParam>) {
        number = static_cast<TypeParam>(static_cast<std::int64_t>(bits) >> 40) / 16;
      } else {
        number = static_cast<TypeParam>(bits);
      }
    }
    for (const reduction& how : {this->all_of(), this->all_of(TypeParam(3), TypeParam(100)),
                                 this->all_of(TypeParam(1), std::numeric_limits<TypeParam>::max()),
                                 this->all_of(TypeParam(100), TypeParam(3))}) {
      this->expect_right(how, numbers, this->reduce_vector(how, numbers));
    }
  }
}

// Whatever instructions there are: lengths that fill no block, any alignment, numbers that compare equal but have other
// bits, and bounds that are no numbers.
TYPED_TEST(page_reductions, have_the_same_bits_with_vectors_and_without) {
  std::mt19937_64 random(11);
  const std::vector<TypeParam> odd = {
      TypeParam(0),
      std::numeric_limits<TypeParam>::lowest(),
      std::numeric_limits<TypeParam>::max(),
      std::numeric_limits<TypeParam>::has_infinity ? -std::numeric_limits<TypeParam>::infinity() : TypeParam(1),
      static_cast<TypeParam>(-static_cast<TypeParam>(0)),
      std::numeric_limits<TypeParam>::quiet_NaN(),
      TypeParam(100)};
  const auto draw = [&] {
    const std::uint64_t bits = random();
    return bits % 4 == 0 ? odd[bits / 4 % odd.size()]
                         : number_of<TypeParam>(bits >> bits / 4 % (65 - 8 * sizeof(TypeParam)));
  };
  for (unsigned round = 0; round < 2000; ++round) {
    std::vector<TypeParam> numbers(random() % 600 + 3);
    for (TypeParam& number : numbers) number = draw();
    const reduction how = this->all_of(draw(), draw());
    const std::size_t skipped = random() % 3;
    const auto bytes = std::as_bytes(std::span(numbers).subspan(skipped));
    ASSERT_EQ(reduce(how, bytes), reduce_without_vectors(how, bytes)) << "round " << round;
  }
}

// More numbers than sums of 32 bits have room for.
TYPED_TEST(page_reductions, have_no_limit_below_two_thousand_million_numbers) {
  const std::size_t size = (std::size_t{1} << 20) + 13;
  for (const TypeParam number : {std::numeric_limits<TypeParam>::lowest(), std::numeric_limits<TypeParam>::max()}) {
    const std::vector<TypeParam> numbers(size, number);
    const reduced_numbers found = this->reduce_vector(this->all_of(), numbers);
    EXPECT_EQ(found, reduce_without_vectors(this->all_of(), std::as_bytes(std::span(numbers))));
    EXPECT_EQ(found.count, size);
    if constexpr (std::is_integral_v<TypeParam>) {
      EXPECT_TRUE(this->sum_of(found) == static_cast<__int128>(number) * static_cast<__int128>(size));
    }
  }
}

TYPED_TEST(page_reductions, of_parts_add_up) {
  std::mt19937_64 random(8);
  std::vector<TypeParam> numbers(700);
  for (TypeParam& number : numbers) number = static_cast<TypeParam>(random() % 120);
  const reduction how = this->all_of(TypeParam(5), TypeParam(90));
  reduced_numbers found;
  for (std::size_t first = 0; first < numbers.size(); first += 70) {
    const std::vector<TypeParam> part(numbers.begin() + static_cast<std::ptrdiff_t>(first),
                                      numbers.begin() + static_cast<std::ptrdiff_t>(first) + 70);
    add(how, this->reduce_vector(how, part), found);
    add(how, this->reduce_vector(how, {}), found);  // nothing changes nothing
  }
  this->expect_right(how, numbers, found);
}

TYPED_TEST(page_reductions, of_the_largest_numbers_do_not_overflow) {
  if constexpr (!std::is_floating_point_v<TypeParam>) {
    for (const TypeParam extreme : {std::numeric_limits<TypeParam>::max(), std::numeric_limits<TypeParam>::lowest()}) {
      const std::vector<TypeParam> numbers(4096, extreme);
      this->expect_right(this->all_of(), numbers, this->reduce_vector(this->all_of(), numbers));
    }
  }
}

TEST(page_reduction, leaves_out_what_is_no_number) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> numbers = {1, nan, 3, -infinity, nan};
  const reduction all{detail::number_type::float64, bits_of(-infinity), bits_of(infinity)};
  const reduced_numbers found = reduce(all, std::as_bytes(std::span(numbers)));
  EXPECT_EQ(found.count, 3u);
  EXPECT_EQ(number_of<double>(found.sum), -infinity);
  EXPECT_EQ(number_of<double>(found.least), -infinity);
  EXPECT_EQ(number_of<double>(found.greatest), 3);
}

TEST(page_reduction, tells_the_page_that_it_is_of) {
  alignas(8) std::array<std::byte, page_bytes> page{};
  const page_hasher hash(5);
  const page_reduction asked{{detail::number_type::uint8, 0, 255}, &hash};
  const auto part = std::span<const std::byte>(page).subspan(16, 8);
  const reduced_page before = reduce_page(asked, page.data(), part);
  // Elsewhere in the page.
  page[4000] = std::byte{1};
  const reduced_page after = reduce_page(asked, page.data(), part);
  EXPECT_EQ(before.numbers, after.numbers);
  EXPECT_NE(before.check, after.check);
  EXPECT_EQ(page_hasher(hash.secret())(page.data()), hash(page.data())) << "the secret makes the same hash elsewhere";
}

}  // namespace
}  // namespace far
