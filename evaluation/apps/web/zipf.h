// Ranks with Zipf's distribution over a bounded range.
#pragma once

#include <cstdint>

#include "apps/random.h"

namespace web {

// Draws ranks 0 to count-1, rank r with a probability proportional to 1 / (r + 1)^exponent, in constant time and space:
// rejection-inversion (W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
// distributions", ACM TOMACS 6(3), 1996). Requires count >= 1 and exponent >= 0; 0 is the uniform distribution.
class zipf {
 public:
  zipf(std::uint64_t count, double exponent);

  [[nodiscard]] std::uint64_t draw(apps::random_words& random) const;

 private:
  [[nodiscard]] double weight(double x) const;
  [[nodiscard]] double integral(double x) const;
  [[nodiscard]] double inverse(double area) const;

  std::uint64_t count_;
  double exponent_;
  double first_;    // the area where the first rank begins
  double last_;     // the area where the last one ends
  double squeeze_;  // distances up to it are accepted without computing an integral
};

}  // namespace web
