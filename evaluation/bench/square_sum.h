// A function of a plugin (far/plugin.h), which `farheap-bench offload` has called on servers and calls itself.
#pragma once

#include <cstdint>
#include <span>

namespace far::bench {

struct square_sum {
  static constexpr const char* plugin = "bench";
  static constexpr const char* version = "1";
  static constexpr std::uint32_t number = 1;

  using element = double;
  struct arguments {};
  struct result {
    double sum = 0;
  };

  static result map(std::span<const double> part, const arguments&) {
    result found;
    for (const double one : part) found.sum += one * one;
    return found;
  }
  static void combine(result& all, const result& next) { all.sum += next.sum; }
};

}  // namespace far::bench
