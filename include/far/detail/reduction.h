// Questions about a sequence of numbers as a whole, and the parts of the answer; see far/summary.h. Plain values,
// because they also travel to memory servers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace far::detail {

enum class number_type : std::uint8_t { int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64 };
inline constexpr number_type last_number_type = number_type::float64;

template <typename T>
concept reducible = (std::is_integral_v<T> && !std::is_same_v<std::remove_cv_t<T>, bool> && sizeof(T) <= 8) ||
                    std::is_same_v<T, float> || std::is_same_v<T, double>;

template <reducible T>
[[nodiscard]] constexpr number_type number_type_of() {
  if constexpr (std::is_same_v<T, float>) {
    return number_type::float32;
  } else if constexpr (std::is_same_v<T, double>) {
    return number_type::float64;
  } else {
    const auto first = std::is_signed_v<T> ? number_type::int8 : number_type::uint8;
    return static_cast<number_type>(static_cast<unsigned>(first) + std::countr_zero(sizeof(T)));
  }
}

// A number of any of the types, in its own representation; the bytes above are 0.
template <reducible T>
[[nodiscard]] std::uint64_t bits_of(T number) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof number);
  return bits;
}
template <reducible T>
[[nodiscard]] T number_of(std::uint64_t bits) {
  T number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// Asks about the numbers of an interval, both ends included. NaN is in none.
struct reduction {
  number_type type = number_type::float64;
  std::uint64_t lowest = 0;
  std::uint64_t highest = 0;

  bool operator==(const reduction&) const = default;
};

// The answer. `least` and `greatest` mean nothing when `count` is 0.
struct reduced_numbers {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;        // the lower half of the sum of integers; of the others, the bits of a double
  std::uint64_t upper_sum = 0;  // the upper half of a sum of 128 bits in two's complement
  std::uint64_t least = 0;
  std::uint64_t greatest = 0;

  bool operator==(const reduced_numbers&) const = default;
};

}  // namespace far::detail
