#include "zipf.h"

#include <algorithm>
#include <cmath>

namespace web {
namespace {

// (exp(x) - 1) / x and log(1 + x) / x, also where x is so small that a division would lose all digits.
double exp_ratio(double x) {
  return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2;
}
double log_ratio(double x) {
  return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1 - x / 2;
}

}  // namespace

zipf::zipf(std::uint64_t count, double exponent)
    : count_(count),
      exponent_(exponent),
      first_(integral(1.5) - 1),
      last_(integral(static_cast<double>(count) + 0.5)),
      squeeze_(2 - inverse(integral(2.5) - weight(2))) {}

std::uint64_t zipf::draw(apps::random_words& random) const {
  while (true) {
    const double area = last_ + (1 - random.next_unit()) * (first_ - last_);
    const double x = inverse(area);
    const double k = std::clamp(std::round(x), 1.0, static_cast<double>(count_));
    if (k - x <= squeeze_ || area >= integral(k + 0.5) - weight(k)) return static_cast<std::uint64_t>(k) - 1;
  }
}

// x^-exponent.
double zipf::weight(double x) const {
  return std::exp(-exponent_ * std::log(x));
}

// The integral of weight() from 1 to x; continuous in the exponent, also at 1.
double zipf::integral(double x) const {
  const double log_x = std::log(x);
  return exp_ratio((1 - exponent_) * log_x) * log_x;
}

double zipf::inverse(double area) const {
  const double t = std::max(area * (1 - exponent_), -1.0);
  return std::exp(log_ratio(t) * area);
}

}  // namespace web
