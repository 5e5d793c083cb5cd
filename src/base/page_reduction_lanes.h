// The inner loop of a summary (page_reduction.h): eight lanes, the first of which takes each eighth number. In two
// forms, a plain one and one for AVX2, with the same results, bit for bit (decision 78). GCC 12 makes no vector
// instructions of the plain one: it merges the conditions of the lanes into jumps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/page_reduction.h"
#include "base/xxh3.h"

namespace far {

inline constexpr std::size_t summary_lanes = 8;

// A sum of 64 bit integers, which may need more. Its halves are added apart: a page has too few numbers for either to
// overflow.
struct wide_sum {
  std::int64_t upper = 0;
  std::uint64_t lower = 0;
};

template <typename T>
using sum_in_lane =
    std::conditional_t<std::is_floating_point_v<T>, double, std::conditional_t<sizeof(T) == 8, wide_sum, std::int64_t>>;

template <typename T>
void add_number(T number, bool counts, wide_sum& to) {
  to.upper += counts ? static_cast<std::int64_t>(number >> 32) : 0;
  to.lower += counts ? static_cast<std::uint32_t>(number) : 0;
}
template <typename T>
void add_number(T number, bool counts, std::int64_t& to) {
  to += counts ? static_cast<std::int64_t>(number) : 0;
}
template <typename T>
void add_number(T number, bool counts, double& to) {
  to += counts ? static_cast<double>(number) : 0.0;
}

template <typename T>
struct lanes_of_summary {
  lanes_of_summary(T lowest_that_counts, T highest_that_counts)
      : lowest(lowest_that_counts), highest(highest_that_counts) {
    least.fill(highest);
    greatest.fill(lowest);
  }

  void take(std::size_t lane, T number) {
    const bool counts = number >= lowest && number <= highest;
    count[lane] += counts ? 1 : 0;
    add_number(number, counts, sum[lane]);
    least[lane] = counts && number < least[lane] ? number : least[lane];
    greatest[lane] = counts && number > greatest[lane] ? number : greatest[lane];
  }

  // `blocks` times eight numbers.
  void take_blocks(const T* numbers, std::size_t blocks) {
    for (std::size_t block = 0; block < blocks; ++block, numbers += summary_lanes) {
      for (std::size_t lane = 0; lane < summary_lanes; ++lane) take(lane, numbers[lane]);
    }
  }
  // The same, before any other number has been taken. Integers may go to other lanes: their results are exact, so the
  // order does not matter. Requires: has_avx2().
  void take_blocks_by_avx2(const T* numbers, std::size_t blocks);

  const T lowest;
  const T highest;
  std::array<std::uint32_t, summary_lanes> count{};
  std::array<sum_in_lane<T>, summary_lanes> sum{};
  std::array<T, summary_lanes> least;
  std::array<T, summary_lanes> greatest;
};

// reduce() without instructions that not every processor has. For tests.
[[nodiscard]] reduced_numbers reduce_without_vectors(const reduction& how, std::span<const std::byte> numbers);

}  // namespace far
