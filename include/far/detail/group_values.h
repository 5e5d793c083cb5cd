// What a far::dataframe knows of the values of one group, and which types its aggregates have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "far/column.h"
#include "far/dataframe.h"
#include "far/detail/column_statistics.h"
#include "far/query.h"
#include "far/vector.h"

namespace far::detail {

// What is known of the values of one column in one group.
template <typename T>
struct group_values {
  using sum_type = std::conditional_t<std::is_floating_point_v<T>, double, wide_integer>;

  std::uint64_t count = 0;
  sum_type sum = 0;
  std::uint64_t bounded = 0;  // the values that are between the bounds
  T least{};
  T greatest{};
  std::optional<vector<T>> all;  // for a median
  std::vector<T> coming;

  void add_bounds(std::uint64_t values, T lowest, T highest) {
    least = bounded == 0 || lowest < least ? lowest : least;
    greatest = bounded == 0 || highest > greatest ? highest : greatest;
    bounded += values;
  }
  void add(T value) {
    ++count;
    sum += value;
    add_bounds(1, value, value);
  }
  void store(const tag& in) {
    if (coming.empty()) return;
    if (!all) all.emplace(in);
    all->append(coming);
    coming.clear();
  }

  [[nodiscard]] cell answer(const column& of, aggregate what) const {
    const std::uint64_t values = std::max(count, bounded);
    if (what == aggregate::count) return static_cast<std::int64_t>(values);
    if (values == 0) return null;
    switch (what) {
      case aggregate::count: break;
      case aggregate::sum: return total();
      case aggregate::mean: return static_cast<double>(sum) / static_cast<double>(count);
      case aggregate::min: return of.cell_of(least);
      case aggregate::max: return of.cell_of(greatest);
      case aggregate::median: break;
    }
    return null;
  }
  [[nodiscard]] cell stored_median() const { return all ? cell(far::median(*all).value()) : cell(null); }

 private:
  [[nodiscard]] cell total() const {
    if constexpr (std::is_floating_point_v<T>) {
      return sum;
    } else {
      if (sum != static_cast<std::int64_t>(sum))
        throw std::overflow_error("the sum of a group does not fit into int64");
      return static_cast<std::int64_t>(sum);
    }
  }
};

[[nodiscard]] inline column_type type_of_aggregate(const std::string& name, column_type of, aggregate what) {
  if (what == aggregate::count) return column_type::int64;
  const bool is_ordered = what == aggregate::min || what == aggregate::max;
  if (of == column_type::text || (of == column_type::time && !is_ordered)) {
    throw std::invalid_argument("a group has no " + std::string(name_of(what)) + " of the column '" + name + "' of " +
                                std::string(name_of(of)));
  }
  if (is_ordered) return of;
  if (what == aggregate::sum) return of == column_type::float64 ? of : column_type::int64;
  return column_type::float64;
}

}  // namespace far::detail
