// far::dataframe::join().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "far/dataframe.h"
#include "far/detail/api.h"
#include "far/detail/frame_keys.h"
#include "far/detail/ordered_gatherer.h"

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

// Of a row on the left: how many entries of the index have its key, and where the first of them is. Of a single one,
// its row, so that the index is not read again.
struct key_matches {
  std::size_t count = 0;
  std::size_t first_or_row = 0;
};

// Looks keys up in an index that is sorted by them. Many at a time, in their order: so the index, however large it is,
// is walked over from front to back, and its pages ahead come in meanwhile.
class index_prober {
 public:
  explicit index_prober(const vector<keyed_row>& index) : index_(index) {}

  // Until the next call. Null has no matches.
  [[nodiscard]] std::span<const key_matches> look_up(std::span<const std::uint64_t> keys) {
    matches_.assign(keys.size(), {});
    order_.resize(keys.size());
    std::iota(order_.begin(), order_.end(), std::uint32_t{0});
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) { return keys[a] < keys[b]; });
    const scope here(index_.home().home());
    const auto all = index_.range(here);
    const auto end = all.end();
    auto at = all.begin();
    for (std::size_t i = 0; i < order_.size() && keys[order_[i]] != null_key;) {
      const std::uint64_t key = keys[order_[i]];
      at = first_from(at, end, key);
      key_matches found{0, static_cast<std::size_t>(at - all.begin())};
      std::size_t row = 0;
      for (; at != end && (*at).key == key; ++at, ++found.count) row = (*at).row;
      if (found.count == 1) found.first_or_row = row;
      for (; i < order_.size() && keys[order_[i]] == key; ++i) matches_[order_[i]] = found;
    }
    return matches_;
  }

 private:
  // The first entry from `at` on whose key is not less, found in steps that grow.
  template <typename Iterator>
  [[nodiscard]] static Iterator first_from(Iterator at, Iterator end, std::uint64_t key) {
    std::ptrdiff_t step = 1;
    while (end - at > step && at[step].key < key) {
      at += step;
      step *= 2;
    }
    return std::lower_bound(at, at + std::min(step + 1, end - at), keyed_row{key, 0});
  }

  const vector<keyed_row>& index_;
  std::vector<std::uint32_t> order_;
  std::vector<key_matches> matches_;
};

[[nodiscard]] inline joined_rows join_rows(const tag& in, const column& left, const column& right, join_kind kind) {
  pair_writer found(in);
  key_reader right_keys(right);
  const vector<keyed_row> index = sort_rows(in, right.size(), right_keys, false);
  key_reader left_keys(left);
  const key_translator translate(left, right);
  const walk how(in, left_keys.bytes());
  index_prober prober(index);
  std::vector<std::uint64_t> keys;
  for (std::size_t first = 0; first < left.size(); first += keys.size()) {
    keys.resize(std::min<std::size_t>(left.size() - first, 131'072));
    left_keys.read(how, first, keys);
    std::ranges::transform(keys, keys.begin(), translate);
    const std::span<const key_matches> matches = prober.look_up(keys);
    const scope here(in.home());
    const auto all = index.range(here);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto [count, first_or_row] = matches[i];
      if (count == 1) found.add(first + i, first_or_row);
      for (std::size_t n = 0; count > 1 && n < count; ++n) {
        found.add(first + i, all[static_cast<std::ptrdiff_t>(first_or_row + n)].row);
      }
      if (count == 0 && kind == join_kind::left) found.add(first + i, no_row);
    }
  }
  return found.finish();
}

// As column::take(), with nulls where there is no row.
[[nodiscard]] inline column take_or_null(const column& from, const vector<std::size_t>& rows) {
  column taken = from.like(rows.home());
  from.visit([&]<typename T>(const vector<T>& all) {
    ordered_gatherer<T> gatherer;
    std::vector<std::size_t> some;
    std::vector<std::size_t> present;
    std::vector<T> values;
    std::vector<T> numbers;
    for (std::size_t first = 0; first < rows.size(); first += some.size()) {
      some.resize(std::min(rows.size() - first, gatherer.most));
      rows.read(first, std::span<std::size_t>(some));
      present.clear();
      std::ranges::copy_if(some, std::back_inserter(present), [](std::size_t row) { return row != no_row; });
      values.resize(present.size());
      gatherer.gather(all, present, std::span<T>(values));
      numbers.clear();
      std::size_t next = 0;
      for (const std::size_t row : some) numbers.push_back(row == no_row ? from.null_as<T>() : values[next++]);
      taken.append_numbers(std::span<const T>(numbers));
    }
  });
  return taken;
}

}  // namespace detail

FAR_LIBRARY_CODE dataframe dataframe::join(const dataframe& right, std::string_view on, join_kind kind) const {
  require_equal_columns();
  right.require_equal_columns();
  const column& left_values = (*this)[on];
  const column& right_values = right[on];
  if (left_values.type() != right_values.type()) {
    throw std::invalid_argument("the column '" + std::string(on) + "' has another type on the right side of a join");
  }
  const detail::joined_rows rows = detail::join_rows(in_, left_values, right_values, kind);
  dataframe joined = take(rows.left);
  for (const auto& one : right.columns_) {
    if (one->name == on) continue;
    joined.add(has(one->name) ? one->name + "_right" : one->name, detail::take_or_null(one->values, rows.right));
  }
  return joined;
}

}  // namespace far
