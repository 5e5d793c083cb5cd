// Random numbers that are a function of (seed, index): the same on every machine, by any number of threads.
#pragma once

#include <cstdint>

namespace apps {

// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that mixes every bit into every other.
constexpr std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// SplitMix64: a sequence of random words.
class random_words {
 public:
  explicit constexpr random_words(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15); }
  // In [0, 1), a multiple of 2^-53.
  constexpr double next_unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace apps
