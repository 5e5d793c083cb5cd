// The numbers of a far container as a whole. Remote ones are not fetched for it: the memory server that holds them does
// the work, and sends 48 bytes for each page of 4096 (AIFM, section 4.3; Atlas, section 4.3).
//
//     far::vector<double> distances(farheap);
//     const far::summary<double> far_trips = distances.summarize({.lowest = 100});
//     std::printf("%zu trips, %g km on average\n", far_trips.count(), far_trips.mean());
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "far/detail/reduction.h"

namespace far {

// The numbers from `lowest` to `highest`, both included; all unless told otherwise. NaN is in no interval.
template <detail::reducible T>
struct interval {
  T lowest = std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  T highest = std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
};

// Where remote numbers are looked at: where they are, or here, so that their pages are fetched and stay for the next
// question as long as there is room. The results are the same.
enum class work : std::uint8_t { there, here };

// Of the numbers of an interval.
template <detail::reducible T>
class summary {
 public:
  using sum_type = std::conditional_t<std::is_floating_point_v<T>, double,
                                      std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;

  explicit summary(const detail::reduced_numbers& found) : found_(found) {}

  [[nodiscard]] std::size_t count() const noexcept { return found_.count; }

  // Exact for integers. Numbers with a fraction are added in an order that depends on the container's layout alone, so
  // the same numbers have the same sum, wherever they are. Throws std::overflow_error when there is no such sum_type.
  [[nodiscard]] sum_type sum() const {
    if constexpr (std::is_floating_point_v<T>) {
      return detail::number_of<double>(found_.sum);
    } else {
      const auto sum = static_cast<sum_type>(found_.sum);
      if (found_.upper_sum != (sum < 0 ? ~std::uint64_t{0} : 0)) {
        throw std::overflow_error("the sum of the numbers does not fit into 64 bits; mean() has it divided");
      }
      return sum;
    }
  }

  // Require: count() > 0.
  [[nodiscard]] double mean() const noexcept {
    if constexpr (std::is_floating_point_v<T>) {
      return detail::number_of<double>(found_.sum) / static_cast<double>(found_.count);
    } else {
      // Of the absolute value: the upper half of a small negative sum would cancel the lower one, with all its digits.
      const bool is_negative = std::is_signed_v<T> && found_.upper_sum >> 63 != 0;
      const std::uint64_t lower = is_negative ? 0 - found_.sum : found_.sum;
      const std::uint64_t upper = is_negative ? ~found_.upper_sum + (lower == 0 ? 1 : 0) : found_.upper_sum;
      const double size = static_cast<double>(upper) * 0x1p64 + static_cast<double>(lower);
      return (is_negative ? -size : size) / static_cast<double>(found_.count);
    }
  }
  [[nodiscard]] T min() const noexcept { return detail::number_of<T>(found_.least); }
  [[nodiscard]] T max() const noexcept { return detail::number_of<T>(found_.greatest); }

 private:
  detail::reduced_numbers found_;
};

}  // namespace far
