// Objects of the benchmarks `objects` and `hybrid`: their content depends on their number and on how often they were
// written, so that every access can tell whether it got the right bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace far::bench {

// The first half does not compress; the second half is zeros.
template <std::size_t bytes>
struct sealed_object {
  static constexpr std::size_t words = bytes / sizeof(std::uint64_t);
  static constexpr std::size_t filled = words / 2;

  std::array<std::uint64_t, words> word{};

  explicit sealed_object(std::uint64_t number) { fill(seed_of(number)); }

  // Reads every byte. Stops the process when it is not the object of this number.
  void check(std::uint64_t number) const {
    std::uint64_t sum = 0;
    for (const std::uint64_t bits : word) sum += bits;
    FAR_CHECK(word[0] - seed_of(number) <= 0xffff'ffff, "an object has the bytes of another");
    FAR_CHECK(sum == word[0] * filled * filled, "an object's bytes have changed");
  }
  // Reads every byte, then writes the first half.
  void rewrite(std::uint64_t number) {
    check(number);
    fill(word[0] + 1);
  }

 private:
  // Odd multiples of one number, the sum of which is that number times the square of their count.
  void fill(std::uint64_t first) {
    for (std::size_t i = 0; i < filled; ++i) word[i] = first * (2 * i + 1);
  }
  // The finaliser of splitmix64, with room below for counting.
  [[nodiscard]] static std::uint64_t seed_of(std::uint64_t number) {
    std::uint64_t value = number + 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
  }
};

}  // namespace far::bench
