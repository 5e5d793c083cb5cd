// Reads numbers of a far vector by their indices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "far/vector.h"

namespace far::detail {

// Copies numbers out by their indices, in ascending order of these, whatever their own: so of a page that has many of
// them all are read at once, and not one by one.
template <typename T>
class ordered_gatherer {
 public:
  static constexpr std::size_t most = std::size_t{1} << 16;

  // As elements::gather(). Requires: there are at most `most` indices.
  void gather(const vector<T>& from, std::span<const std::size_t> indices, std::span<T> into) {
    const bool is_any_wrong = std::ranges::any_of(indices, [&](std::size_t one) { return one >= from.size(); });
    if (is_any_wrong || std::ranges::is_sorted(indices)) return from.gather(indices, into);
    order_.clear();
    for (const std::size_t one : indices) order_.push_back(one * most + order_.size());
    std::sort(order_.begin(), order_.end());
    sorted_.resize(indices.size());
    std::ranges::transform(order_, sorted_.begin(), [](std::uint64_t one) { return one / most; });
    numbers_.resize(indices.size());
    from.gather(sorted_, std::span<T>(numbers_));
    for (std::size_t i = 0; i < numbers_.size(); ++i) into[order_[i] % most] = numbers_[i];
  }

 private:
  std::vector<std::uint64_t> order_;  // indices with their positions; a vector has less than 2^48 numbers
  std::vector<std::size_t> sorted_;
  std::vector<T> numbers_;
};

}  // namespace far::detail
