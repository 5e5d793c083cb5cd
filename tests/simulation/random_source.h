// Every choice of a simulation, from one seed.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace far::simulation {

// A bijection that leaves no pattern (the finalizer of splitmix64).
[[nodiscard]] constexpr std::uint64_t scramble(std::uint64_t value) {
  value ^= value >> 30;
  value *= 0xbf58476d1ce4e5b9u;
  value ^= value >> 27;
  value *= 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_(scramble(seed + 1)) {}

  [[nodiscard]] std::uint64_t next() { return scramble(state_ += 0x9e3779b97f4a7c15u); }
  // Requires: bound > 0.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  // Both ends included.
  [[nodiscard]] std::uint64_t between(std::uint64_t least, std::uint64_t most) {
    return least + below(most - least + 1);
  }
  [[nodiscard]] bool chance(std::uint64_t per_mille) { return below(1000) < per_mille; }
  template <typename Choice>
  [[nodiscard]] Choice one_of(std::initializer_list<Choice> choices) {
    return choices.begin()[below(choices.size())];
  }

 private:
  std::uint64_t state_;
};

}  // namespace far::simulation
