// The groups of a far::dataframe's rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "far/column.h"
#include "far/detail/frame_keys.h"
#include "far/detail/frame_walk.h"
#include "far/detail/reduction.h"

namespace far::detail {

inline constexpr std::size_t most_group_keys = 4;
using group_key = std::array<std::uint64_t, most_group_keys>;

struct group_key_hash {
  std::size_t operator()(const group_key& key) const {
    std::uint64_t hash = 0;
    for (const std::uint64_t part : key) hash = (hash ^ part) * 0x9e3779b97f4a7c15u ^ hash >> 29;
    return hash;
  }
};

// Numbers the groups in the order in which they are found. Where the keys can only have few combinations, as the
// statistics of their columns say, these are indices of an array; otherwise they are hashed.
class group_table {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  // The groups as a far tier finds them that has the keys: a number for each combination of keys (keyed_rows).
  struct in_far_tier {
    std::vector<const column*> columns;
    std::vector<row_key> keys;  // none: it cannot
    std::size_t groups = 0;
  };

  // `how`: the walk over the keys.
  group_table(const std::vector<const column*>& keys, const walk& how) : how_(how) {
    if (keys.empty() || keys.size() > most_group_keys) {
      throw std::invalid_argument("a data frame is grouped by one to four columns");
    }
    std::uint64_t combinations = 1;
    for (const column* const one : keys) {
      readers_.emplace_back(*one);
      ranges_.push_back(readers_.back().range());
      // One more for null.
      const std::uint64_t range = std::min(ranges_.back().greatest - ranges_.back().least, most_combinations);
      combinations = std::min(combinations * (range + 2), most_combinations + 1);
    }
    if (combinations <= most_combinations) number_of_index_.resize(combinations, unseen);
    keys_.resize(readers_.size());
    note_far_keys(keys);
  }

  [[nodiscard]] const in_far_tier& far_groups() const { return far_groups_; }
  // The group that the far tier has this number for. Requires: it has rows.
  [[nodiscard]] std::uint32_t number_of_far_group(std::size_t far_group) {
    const group_key key = key_of_far_group(far_group);
    std::uint32_t& known = number_of_index_[index_of(key)];
    if (known == unseen) known = add(key);
    return known;
  }
  // The same; `none` if no row of it was seen.
  [[nodiscard]] std::uint32_t known_far_group(std::size_t far_group) const {
    const std::uint32_t known = number_of_index_[index_of(key_of_far_group(far_group))];
    return known == unseen ? none : known;
  }

  // The groups of the rows from `first` on; `none` for a row with a null.
  void number(std::size_t first, std::span<std::uint32_t> groups) {
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      keys_[i].resize(groups.size());
      readers_[i].read(how_, first, keys_[i]);
    }
    number_keys(groups);
  }
  // The same of rows that are looked at once.
  void number(std::size_t first, std::span<std::uint32_t> groups, non_temporal_t /*how*/) {
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      keys_[i].resize(groups.size());
      readers_[i].read(first, keys_[i], non_temporal);
    }
    number_keys(groups);
  }

  // Starts to fetch the keys of so many rows.
  void prefetch(std::size_t first, std::size_t rows) const {
    for (const key_reader& one : readers_) one.prefetch(first, rows);
  }

  [[nodiscard]] std::size_t size() const { return key_of_group_.size(); }
  // The groups in ascending order of their keys.
  [[nodiscard]] std::vector<std::pair<group_key, std::uint32_t>> sorted() const {
    std::vector<std::pair<group_key, std::uint32_t>> all;
    for (const group_key& key : key_of_group_) all.emplace_back(key, static_cast<std::uint32_t>(all.size()));
    std::sort(all.begin(), all.end());
    return all;
  }
  [[nodiscard]] cell cell_with(std::size_t column_number, const group_key& key) const {
    return readers_[column_number].cell_with(key[column_number]);
  }

 private:
  // Of the rows whose keys were read.
  void number_keys(std::span<std::uint32_t> groups) {
    if (number_of_index_.empty()) return number_by_hash(groups);
    indices_.assign(groups.size(), 0);
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      for (std::size_t row = 0; row < groups.size(); ++row)
        indices_[row] = add_to_index(indices_[row], i, keys_[i][row]);
    }
    for (std::size_t row = 0; row < groups.size(); ++row) {
      std::uint32_t& known = number_of_index_[indices_[row]];
      if (known == unseen) [[unlikely]] {
        bool is_any_null = false;
        const group_key key = key_of_row(row, is_any_null);
        known = is_any_null ? none : add(key);
      }
      groups[row] = known;
    }
  }
  [[nodiscard]] group_key key_of_far_group(std::size_t far_group) const {
    group_key key{};
    for (std::size_t i = readers_.size(); i-- > 0;) {
      key[i] = readers_[i].key_in_far_tier(far_group % far_groups_.keys[i].count);
      far_group /= far_groups_.keys[i].count;
    }
    return key;
  }
  [[nodiscard]] std::uint32_t index_of(const group_key& key) const {
    std::uint32_t index = 0;
    for (std::size_t i = 0; i < readers_.size(); ++i) index = add_to_index(index, i, key[i]);
    return index;
  }
  // The index of a row: that of its keys so far, and the next one's. Null is behind the greatest.
  [[nodiscard]] std::uint32_t add_to_index(std::uint32_t index, std::size_t column_number, std::uint64_t key) const {
    const std::uint64_t least = ranges_[column_number].least;
    const std::uint64_t of_null = ranges_[column_number].greatest - least + 1;
    return static_cast<std::uint32_t>(index * (of_null + 1) + std::min(key - least, of_null));
  }
  void note_far_keys(const std::vector<const column*>& columns) {
    if (number_of_index_.empty()) return;
    in_far_tier found{columns, {}, 1};
    for (const key_reader& one : readers_) {
      const std::optional<row_key> key = one.in_far_tier();
      if (!key || key->count * found.groups > most_groups) return;
      found.keys.push_back(*key);
      found.groups *= key->count;
    }
    far_groups_ = std::move(found);
  }

  static constexpr std::uint64_t most_combinations = 65'536;
  static constexpr std::uint32_t unseen = none - 1;

  [[nodiscard]] group_key key_of_row(std::size_t row, bool& is_any_null) const {
    group_key key{};
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      key[i] = keys_[i][row];
      is_any_null |= key[i] == null_key;
    }
    return key;
  }
  void number_by_hash(std::span<std::uint32_t> groups) {
    for (std::size_t row = 0; row < groups.size(); ++row) {
      bool is_any_null = false;
      const group_key key = key_of_row(row, is_any_null);
      groups[row] = none;
      if (is_any_null) continue;
      const auto [at, is_new] = number_of_.try_emplace(key, static_cast<std::uint32_t>(size()));
      groups[row] = is_new ? add(key) : at->second;
    }
  }
  [[nodiscard]] std::uint32_t add(const group_key& key) {
    if (size() >= unseen) throw std::length_error("a data frame has too many groups");
    key_of_group_.push_back(key);
    return static_cast<std::uint32_t>(size() - 1);
  }

  walk how_;
  std::vector<key_reader> readers_;
  std::vector<key_range> ranges_;
  std::vector<std::vector<std::uint64_t>> keys_;  // of some rows
  std::vector<std::uint32_t> indices_;            // of the same rows
  std::vector<std::uint32_t> number_of_index_;    // empty when there are too many
  std::unordered_map<group_key, std::uint32_t, group_key_hash> number_of_;
  std::vector<group_key> key_of_group_;
  in_far_tier far_groups_;
};

}  // namespace far::detail
