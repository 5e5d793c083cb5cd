// What the types of columns have in common with C++, and walks over columns side by side.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "far/column.h"
#include "far/scope.h"
#include "far/vector.h"

namespace far::detail {

template <typename T>
inline constexpr bool is_cell_number =
    std::is_same_v<T, std::int64_t> || std::is_same_v<T, double> || std::is_same_v<T, bool>;

template <typename T>
  requires is_cell_number<T>
[[nodiscard]] constexpr column_type column_type_of() {
  if constexpr (std::is_same_v<T, std::int64_t>) return column_type::int64;
  if constexpr (std::is_same_v<T, double>) return column_type::float64;
  return column_type::boolean;
}
template <typename T>
using number_of_column = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
template <typename T>
[[nodiscard]] constexpr number_of_column<T> null_of() {
  if constexpr (std::is_same_v<T, double>) return column::no_real;
  if constexpr (std::is_same_v<T, bool>) return column::no_flag;
  if constexpr (std::is_same_v<T, std::int64_t>) return column::no_integer;
}
template <typename T>
[[nodiscard]] bool is_null(number_of_column<T> number) {
  if constexpr (std::is_same_v<T, double>) return std::isnan(number);
  if constexpr (!std::is_same_v<T, double>) return number == null_of<T>();
}

// A walk over columns, side by side. Columns that do not fit in local memory anyhow do not push others out.
class walk {
 public:
  walk(const tag& in, std::size_t bytes) : passes_(bytes > in.home().statistics().budget_bytes / 4 * 3) {}

  // The numbers from `first` on, up to the end of their chunk, and at most `count`.
  template <typename T>
  [[nodiscard]] std::span<const T> chunk(const vector<T>& of, const scope& here, std::size_t first,
                                         std::size_t count) const {
    return passes_ ? of.chunk(here, first, count, non_temporal) : of.chunk(here, first, count);
  }

 private:
  bool passes_;
};

// Numbers of a column as T, which derive() is given; the column keeps them so, or in fewer bytes.
template <typename T>
class number_reader {
 public:
  using number = number_of_column<T>;

  // Throws std::invalid_argument when the column, which has this name, has others.
  number_reader(const column& of, std::string_view name) : numbers_(of.numbers<number>()) {
    const bool fits =
        of.type() == column_type_of<T>() || (std::is_same_v<T, std::int64_t> && of.type() == column_type::time);
    if (!fits) {
      throw std::invalid_argument("the column '" + std::string(name) + "' has the type " +
                                  std::string(name_of(of.type())) + " and is used as another");
    }
    if constexpr (std::is_same_v<T, std::int64_t>) {
      narrow_ = std::tuple(of.numbers<std::int8_t>(), of.numbers<std::int16_t>(), of.numbers<std::int32_t>());
    }
    if constexpr (std::is_same_v<T, double>) narrow_ = std::tuple(of.numbers<float>());
  }

  // Until the next call. Requires: they lie in one chunk.
  [[nodiscard]] std::span<const number> chunk(const walk& how, const scope& here, std::size_t first,
                                              std::size_t count) {
    if (numbers_ != nullptr) return how.chunk(*numbers_, here, first, count);
    std::apply([&](const auto*... one) { (..., widen(how, one, here, first, count)); }, narrow_);
    return widened_;
  }

 private:
  using narrow_vectors = std::conditional_t<
      std::is_same_v<T, std::int64_t>,
      std::tuple<const vector<std::int8_t>*, const vector<std::int16_t>*, const vector<std::int32_t>*>,
      std::conditional_t<std::is_same_v<T, double>, std::tuple<const vector<float>*>, std::tuple<>>>;

  template <typename Narrow>
  void widen(const walk& how, const vector<Narrow>* from, const scope& here, std::size_t first, std::size_t count) {
    if (from == nullptr) return;
    const std::span<const Narrow> narrow = how.chunk(*from, here, first, count);
    widened_.resize(narrow.size());
    std::transform(narrow.begin(), narrow.end(), widened_.begin(), [](Narrow one) {
      if constexpr (std::is_integral_v<Narrow>) {
        if (one == std::numeric_limits<Narrow>::lowest()) return null_of<T>();
      }
      return static_cast<number>(one);
    });
  }

  const vector<number>* numbers_;
  narrow_vectors narrow_{};  // at most one of them and of `numbers_` is not null
  std::vector<number> widened_;
};

// A column that derive() makes of values, some of which wait in local memory.
template <typename T>
class derived_column {
 public:
  explicit derived_column(const tag& in) : values_(in, column_type_of<T>()) {}

  void add(T value) { waiting_.push_back(static_cast<number_of_column<T>>(value)); }
  void add_null() { waiting_.push_back(null_of<T>()); }
  void store() {
    values_.append_numbers(std::span<const number_of_column<T>>(waiting_));
    waiting_.clear();
  }
  [[nodiscard]] column take() && { return std::move(values_); }

 private:
  column values_;
  std::vector<number_of_column<T>> waiting_;
};

}  // namespace far::detail
