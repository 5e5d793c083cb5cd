// How far ahead of need pages are evicted, and how many at a time, as users may set it.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/result.h"

namespace far::engine {

// Pages that move in one batch, out or in, at most; the B of invariant I2.
inline constexpr std::size_t batch_pages = 64;

struct eviction_pace {
  static constexpr double largest_free_share = 0.25;

  // The low watermark, as a share of the budget: eviction ahead of need begins when less is free, and goes on until
  // twice as much is. 0: as budget.cc chooses.
  double free_share = 0;
  // Pages that are evicted at a time, 1 to batch_pages. They share the cost of the calls and of the interruption of
  // other processors; a missing thread that evicts waits for all of them.
  std::size_t pages_a_batch = batch_pages;
};

// Errors: not a percentage above 0 and up to 25%, as in "5%". They show a right example.
[[nodiscard]] result<double> parse_free_share(std::string_view text);
// Errors: not a number from 1 to batch_pages.
[[nodiscard]] result<std::size_t> parse_batch(std::string_view text);
// Errors: values outside of these limits.
[[nodiscard]] result<void> check_pace(const eviction_pace& pace);

}  // namespace far::engine
