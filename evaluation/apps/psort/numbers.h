// The numbers to sort, and what is true of them in any order.
#pragma once

#include <cstdint>
#include <vector>

namespace psort {

// Numbers that are a function of their place and the seed. Requires threads >= 1, as below.
void fill(std::vector<std::uint64_t>& values, unsigned threads, std::uint64_t seed);

// The findings of one pass over the values.
struct summary {
  std::uint64_t checksum = 0;  // the same for any order
  bool sorted = true;
};

summary summarise(const std::vector<std::uint64_t>& values, unsigned threads);

}  // namespace psort
