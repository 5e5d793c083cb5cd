// The keys by which the rows of columns are ordered and compared.
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "far/column.h"
#include "far/detail/frame_walk.h"
#include "far/detail/reduction.h"
#include "far/scope.h"
#include "far/vector.h"

namespace far::detail {

// Of the codes of a column of text: their places in the order of the texts.
[[nodiscard]] inline std::vector<std::int32_t> ranks_of(const std::vector<std::string>& dictionary) {
  std::vector<std::int32_t> sorted(dictionary.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::sort(sorted.begin(), sorted.end(), [&](std::int32_t a, std::int32_t b) {
    return dictionary[static_cast<std::size_t>(a)] < dictionary[static_cast<std::size_t>(b)];
  });
  std::vector<std::int32_t> ranks(dictionary.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    ranks[static_cast<std::size_t>(sorted[i])] = static_cast<std::int32_t>(i);
  }
  return ranks;
}

// Null has the greatest key, which no value has: the key of a value is below, because the greatest int64 is kept from
// it by one, and what floating point has there is NaN.
inline constexpr std::uint64_t null_key = ~std::uint64_t{0};

// Of the values of a column. Of one without a value, any key.
struct key_range {
  std::uint64_t least = 0;
  std::uint64_t greatest = 0;
};

// Keys of the rows of a column, some at a time: unsigned numbers in the order of the values, equal for equal ones.
class key_reader {
 public:
  explicit key_reader(const column& of)
      : of_(of), ranks_(of.type() == column_type::text ? ranks_of(of.dictionary()) : std::vector<std::int32_t>()) {
    code_of_rank_.resize(ranks_.size());
    for (std::size_t code = 0; code < ranks_.size(); ++code) {
      code_of_rank_[static_cast<std::size_t>(ranks_[code])] = static_cast<std::int32_t>(code);
    }
  }

  // Of the rows from `first` on.
  void read(const walk& how, std::size_t first, std::span<std::uint64_t> keys) {
    of_.visit([&](const auto& all) {
      for (std::size_t done = 0; done < keys.size();) {
        const scope here(all.home().home());
        const auto part = how.chunk(all, here, first + done, keys.size() - done);
        for (std::size_t i = 0; i < part.size(); ++i) keys[done + i] = key(part[i]);
        done += part.size();
      }
    });
  }
  // The same of rows that are looked at once: those that are not here are copied from where they are.
  void read(std::size_t first, std::span<std::uint64_t> keys, non_temporal_t /*how*/) {
    of_.visit([&]<typename T>(const vector<T>& all) {
      std::vector<T> numbers(keys.size());
      all.read(first, std::span<T>(numbers), non_temporal);
      for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = key(numbers[i]);
    });
  }
  // Starts to fetch what read() needs for so many rows.
  void prefetch(std::size_t first, std::size_t rows) const {
    of_.visit([&](const auto& all) { all.prefetch(first, rows); });
  }
  // Of its column in far memory.
  [[nodiscard]] std::size_t bytes() const { return of_.bytes(); }
  // Without a look at the rows.
  [[nodiscard]] key_range range() const {
    return of_.visit([&](const auto& all) -> key_range {
      const auto known = of_.known(all);
      if (known.count() == 0) return {};
      // Of texts, the order of the codes is not that of the keys.
      if (of_.type() == column_type::text) return {0, ranks_.size() - 1};
      return {key(known.min()), key(known.max())};
    });
  }
  // The keys as a far tier finds them. Nothing: they are not integers, or far from each other, or there is none.
  [[nodiscard]] std::optional<row_key> in_far_tier() const {
    return of_.visit([&]<typename T>(const vector<T>& all) -> std::optional<row_key> {
      if constexpr (std::is_integral_v<T>) {
        const summary<T> known = of_.known(all);
        if (known.count() == 0) return std::nullopt;
        const std::uint64_t more = key_of(known.max()) - key_of(known.min());
        if (more >= most_groups) return std::nullopt;
        return row_key{bits_of(known.min()), static_cast<std::uint32_t>(more) + 1, number_type_of<T>()};
      }
      return std::nullopt;
    });
  }
  // Of these, the one with this number. Requires: there are as many.
  [[nodiscard]] std::uint64_t key_in_far_tier(std::size_t number) const {
    return of_.visit([&]<typename T>(const vector<T>& all) -> std::uint64_t {
      if constexpr (std::is_integral_v<T>) return key(static_cast<T>(of_.known(all).min() + static_cast<T>(number)));
      return null_key;
    });
  }
  // The value with a key. Requires: it is that of a row.
  [[nodiscard]] cell cell_with(std::uint64_t key) const {
    switch (of_.type()) {
      case column_type::int64:
      case column_type::time: return of_.cell_of(number_with_key<std::int64_t>(key + 1));
      case column_type::float64: return of_.cell_of(number_with_key<double>(key));
      case column_type::boolean: return of_.cell_of(static_cast<std::uint8_t>(key));
      case column_type::text: break;
    }
    return of_.cell_of(code_of_rank_[key]);
  }

 private:
  // The least int64 is null, so all others move down by one.
  [[nodiscard]] static std::uint64_t key(std::int64_t number) {
    return number == column::no_integer ? null_key : key_of(number) - 1;
  }
  [[nodiscard]] static std::uint64_t key(std::int16_t number) {
    return number == std::numeric_limits<std::int16_t>::lowest() ? null_key : key(std::int64_t{number});
  }
  [[nodiscard]] static std::uint64_t key(std::int8_t number) {
    return number == std::numeric_limits<std::int8_t>::lowest() ? null_key : key(std::int64_t{number});
  }
  [[nodiscard]] static std::uint64_t key(float number) { return key(static_cast<double>(number)); }
  [[nodiscard]] static std::uint64_t key(double number) { return std::isnan(number) ? null_key : key_of(number); }
  [[nodiscard]] static std::uint64_t key(std::uint8_t flag) { return flag > 1 ? null_key : flag; }
  [[nodiscard]] std::uint64_t key(std::int32_t number) const {
    if (of_.type() != column_type::text) {
      return number == std::numeric_limits<std::int32_t>::lowest() ? null_key : key(std::int64_t{number});
    }
    return number < 0 ? null_key : static_cast<std::uint64_t>(ranks_[static_cast<std::size_t>(number)]);
  }

  const column& of_;
  std::vector<std::int32_t> ranks_;
  std::vector<std::int32_t> code_of_rank_;
};

struct keyed_row {
  std::uint64_t key = 0;
  std::size_t row = 0;

  auto operator<=>(const keyed_row&) const = default;
};

// Rows with their keys, in the order of the keys; equal ones in that of the rows.
[[nodiscard]] inline vector<keyed_row> sort_rows(const tag& in, std::size_t rows, key_reader& keys, bool descending) {
  vector<keyed_row> all(in);
  const walk how(in, keys.bytes());
  std::vector<std::uint64_t> some;
  std::vector<keyed_row> keyed;
  for (std::size_t first = 0; first < rows; first += some.size()) {
    some.resize(std::min<std::size_t>(rows - first, 8192));
    keys.read(how, first, some);
    keyed.clear();
    for (std::size_t i = 0; i < some.size(); ++i) {
      keyed.push_back({descending && some[i] != null_key ? null_key - 1 - some[i] : some[i], first + i});
    }
    all.append(keyed);
  }
  const scope here(in.home());
  const auto range = all.range_mut(here);
  std::sort(range.begin(), range.end());
  return all;
}

[[nodiscard]] inline vector<std::size_t> sorted_rows(const column& by, bool descending) {
  const tag& in = by.visit([](const auto& all) -> const tag& { return all.home(); });
  key_reader keys(by);
  const vector<keyed_row> sorted = sort_rows(in, by.size(), keys, descending);
  vector<std::size_t> rows(in);
  std::vector<std::size_t> some;
  const scope here(in.home());
  for (const std::span<const keyed_row> part : sorted.chunks(here)) {
    some.clear();
    for (const keyed_row& one : part) some.push_back(one.row);
    rows.append(some);
  }
  return rows;
}

}  // namespace far::detail
