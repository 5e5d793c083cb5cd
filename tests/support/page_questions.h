// Shared by the tests of what is asked about the numbers of a page (base/page_reduction.h).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "base/page_reduction.h"

namespace far::testing_support {

// Lies behind an answer before it is written.
inline constexpr std::byte untouched{0xa5};

using all_number_types = testing::Types<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t,
                                        std::uint16_t, std::uint32_t, std::uint64_t, float, double>;

// The fixture for numbers of one type.
template <typename T>
class page_questions : public testing::Test {
 protected:
  static constexpr std::size_t on_a_page = page_bytes / sizeof(T);

  // Of different sizes, some equal, some the greatest and the least, and with what is no number.
  static std::vector<T> some_numbers(std::size_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<T> numbers(count);
    for (T& number : numbers) {
      number = static_cast<T>(random() % 120);
      if constexpr (std::is_floating_point_v<T>) {
        if (random() % 9 == 0) number = std::numeric_limits<T>::quiet_NaN();
        if (random() % 9 == 0) number = -number / 7;
      } else if (random() % 5 == 0) {
        const std::uint64_t which = random();
        number = which % 2 == 0 ? static_cast<T>(which / 8)
                                : (which % 8 < 4 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min());
      }
    }
    return numbers;
  }
  // The answer: it has found_bytes() and no more is written. `groups`: as find() wants them.
  static std::vector<std::byte> found(const reduction& how, const std::vector<T>& numbers,
                                      const std::uint8_t* groups = nullptr) {
    EXPECT_TRUE(is_valid(how));
    const std::size_t bytes = found_bytes(how);
    EXPECT_EQ(bytes % 8, 0u);
    EXPECT_LE(answer_bytes(how), most_answer_bytes);
    std::vector<std::byte> to(bytes + 64, untouched);
    find(how, std::as_bytes(std::span(numbers)), to.data(), groups);
    EXPECT_EQ(std::count(to.begin() + static_cast<std::ptrdiff_t>(bytes), to.end(), untouched), 64);
    to.resize(bytes);
    return to;
  }
};

}  // namespace far::testing_support
