// What quantiles and medians are between two numbers.
#pragma once

#include <cmath>
#include <numeric>

#include "far/detail/reduction.h"

namespace far::detail {

// Between two different numbers; the share is above 0 and below 1. Rounded as NumPy does it, from the nearer one on.
// Products are rounded, too, also where the processor could leave that out.
[[nodiscard]] inline double interpolate(double low, double high, double share) {
  const double distance = high - low;
  // NumPy's would be infinite, or beyond the other end.
  if (std::isinf(distance) && std::isfinite(low) && std::isfinite(high)) return low * (1 - share) + high * share;
  const volatile double part = distance * (share < 0.5 ? share : 1 - share);
  return share < 0.5 ? low + part : high - part;
}

// The middle number, or half of the sum of the two in the middle, which may be too large for a double itself.
template <reducible T>
[[nodiscard]] double median_between(T low, T high) {
  return low == high ? static_cast<double>(low) : std::midpoint(static_cast<double>(low), static_cast<double>(high));
}

}  // namespace far::detail
