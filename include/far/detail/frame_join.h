// far::dataframe::join().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "far/dataframe.h"

namespace far {

namespace detail {

// A row on the right for none.
inline constexpr std::size_t no_row = ~std::size_t{0};

// Keys on the left become those that equal values have on the right.
class key_translator {
 public:
  key_translator(const column& left, const column& right) {
    if (left.type() != column_type::text) return;
    const std::vector<std::int32_t> ranks = ranks_of(left.dictionary());
    const std::vector<std::int32_t> right_ranks = ranks_of(right.dictionary());
    right_of_.assign(ranks.size(), null_key);
    for (std::size_t code = 0; code < ranks.size(); ++code) {
      const std::int32_t there = right.find_code(left.dictionary()[code]);
      if (there < 0) continue;
      right_of_[static_cast<std::size_t>(ranks[code])] =
          static_cast<std::uint64_t>(right_ranks[static_cast<std::size_t>(there)]);
    }
    is_text_ = true;
  }
  [[nodiscard]] std::uint64_t operator()(std::uint64_t key) const {
    return is_text_ && key != null_key ? right_of_[key] : key;
  }

 private:
  bool is_text_ = false;
  std::vector<std::uint64_t> right_of_;
};

// Pairs of rows that join.
struct joined_rows {
  vector<std::size_t> left;
  vector<std::size_t> right;
};

// Collects pairs in far memory; only a few wait in local memory, however many rows have the same value.
class pair_writer {
 public:
  explicit pair_writer(const tag& in) : found_{vector<std::size_t>(in), vector<std::size_t>(in)} {}

  void add(std::size_t left, std::size_t right) {
    lefts_.push_back(left);
    rights_.push_back(right);
    if (lefts_.size() == most_waiting) store();
  }
  [[nodiscard]] joined_rows finish() {
    store();
    return std::move(found_);
  }

 private:
  static constexpr std::size_t most_waiting = 8192;

  void store() {
    found_.left.append(lefts_);
    found_.right.append(rights_);
    lefts_.clear();
    rights_.clear();
  }

  joined_rows found_;
  std::vector<std::size_t> lefts_;
  std::vector<std::size_t> rights_;
};

[[nodiscard]] inline joined_rows join_rows(const tag& in, const column& left, const column& right, join_kind kind) {
  pair_writer found(in);
  key_reader right_keys(right);
  const vector<keyed_row> index = sort_rows(in, right.size(), right_keys, false);
  key_reader left_keys(left);
  const key_translator translate(left, right);
  const walk how(in, left_keys.bytes());
  std::vector<std::uint64_t> keys;
  for (std::size_t first = 0; first < left.size(); first += keys.size()) {
    keys.resize(std::min<std::size_t>(left.size() - first, 8192));
    left_keys.read(how, first, keys);
    const scope here(in.home());
    const auto all = index.range(here);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::uint64_t key = translate(keys[i]);
      bool is_any = false;
      auto at = key == null_key ? all.end() : std::lower_bound(all.begin(), all.end(), keyed_row{key, 0});
      for (; at != all.end() && (*at).key == key; ++at) {
        is_any = true;
        found.add(first + i, (*at).row);
      }
      if (!is_any && kind == join_kind::left) found.add(first + i, no_row);
    }
  }
  return found.finish();
}

// As column::take(), with nulls where there is no row.
[[nodiscard]] inline column take_or_null(const column& from, const vector<std::size_t>& rows) {
  column taken = from.like(rows.home());
  const scope here(rows.home().home());
  from.visit([&](const auto& all) {
    using T = typename std::remove_cvref_t<decltype(all)>::value_type;
    std::vector<std::size_t> present;
    std::vector<T> values;
    std::vector<T> numbers;
    for (const std::span<const std::size_t> part : rows.chunks(here)) {
      present.clear();
      for (const std::size_t row : part) {
        if (row != no_row) present.push_back(row);
      }
      values.resize(present.size());
      all.gather(present, std::span<T>(values));
      numbers.clear();
      std::size_t next = 0;
      for (const std::size_t row : part) numbers.push_back(row == no_row ? from.null_as<T>() : values[next++]);
      taken.append_numbers(std::span<const T>(numbers));
    }
  });
  return taken;
}

}  // namespace detail

inline dataframe dataframe::join(const dataframe& right, std::string_view on, join_kind kind) const {
  const column& left_values = (*this)[on];
  const column& right_values = right[on];
  if (left_values.type() != right_values.type()) {
    throw std::invalid_argument("the column '" + std::string(on) + "' has another type on the right side of a join");
  }
  const detail::joined_rows rows = detail::join_rows(in_, left_values, right_values, kind);
  dataframe joined = take(rows.left);
  for (const auto& [name, values] : right.columns_) {
    if (name == on) continue;
    joined.add(has(name) ? name + "_right" : name, detail::take_or_null(values, rows.right));
  }
  return joined;
}

}  // namespace far
