// What plain loops answer to the questions of far/query.h. They are the model and not what is tested: under sanitizers,
// too, they are optimized and go unwatched, or most of the time would go into sorting (CMakeLists.txt).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace far::test {

// Holds each number of each type exactly, so that the model is of one type.
using any_number = long double;

struct plain_answers {
  std::vector<std::size_t> selected;
  std::vector<std::uint64_t> tallied;
  std::vector<any_number> largest;
  std::vector<any_number> smallest;
  std::vector<any_number> distinct;
  std::vector<any_number> gathered;
  std::vector<any_number> quantiles;
};

inline constexpr std::array fractions_of_quantiles = {0.0, 0.1, 0.25, 0.5, 0.999, 1.0};

// About the numbers of an interval, of which it lists up to 1000 at each end; it tallies those from 3 to 90, if wanted.
[[nodiscard]] plain_answers ask_plainly(const std::vector<any_number>& all, any_number lowest, any_number highest,
                                        bool tallies);

}  // namespace far::test
