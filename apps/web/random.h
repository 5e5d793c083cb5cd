// Random numbers that depend on a seed and a position alone, so that requests are the same in whatever order, and on
// whichever thread, they are made.
#pragma once

#include <cstdint>

namespace web {

// A bijection that scatters (the finaliser of SplitMix64).
inline std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

class random_stream {
 public:
  explicit random_stream(std::uint64_t seed) : state_(mix(seed + 0x9e3779b97f4a7c15u)) {}

  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15u); }

  // In (0, 1]: its logarithm is finite.
  double next_unit() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace web
