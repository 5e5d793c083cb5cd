// far::dataframe::group_by().
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "far/dataframe.h"

namespace far {

namespace detail {

inline constexpr std::size_t most_group_keys = 4;
using group_key = std::array<std::uint64_t, most_group_keys>;

struct group_key_hash {
  std::size_t operator()(const group_key& key) const {
    std::uint64_t hash = 0;
    for (const std::uint64_t part : key) hash = (hash ^ part) * 0x9e3779b97f4a7c15u ^ hash >> 29;
    return hash;
  }
};

// Numbers the groups in the order in which they are found.
class group_table {
 public:
  static constexpr std::size_t none = ~std::size_t{0};

  explicit group_table(const std::vector<const column*>& keys) {
    if (keys.empty() || keys.size() > most_group_keys) {
      throw std::invalid_argument("a data frame is grouped by one to four columns");
    }
    for (const column* const one : keys) readers_.emplace_back(*one);
  }

  // The groups of the rows from `first` on; `none` for a row with a null.
  void number(std::size_t first, std::span<std::size_t> groups) {
    keys_.resize(readers_.size());
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      keys_[i].resize(groups.size());
      readers_[i].read(first, keys_[i]);
    }
    for (std::size_t row = 0; row < groups.size(); ++row) {
      group_key key{};
      bool is_any_null = false;
      for (std::size_t i = 0; i < readers_.size(); ++i) {
        key[i] = keys_[i][row];
        is_any_null |= key[i] == null_key;
      }
      groups[row] = is_any_null ? none : number_of_.try_emplace(key, number_of_.size()).first->second;
    }
  }

  [[nodiscard]] std::size_t size() const { return number_of_.size(); }
  // The groups in ascending order of their keys.
  [[nodiscard]] std::vector<std::pair<group_key, std::size_t>> sorted() const {
    std::vector<std::pair<group_key, std::size_t>> all(number_of_.begin(), number_of_.end());
    std::sort(all.begin(), all.end());
    return all;
  }
  [[nodiscard]] cell cell_with(std::size_t column_number, const group_key& key) const {
    return readers_[column_number].cell_with(key[column_number]);
  }

 private:
  std::vector<key_reader> readers_;
  std::vector<std::vector<std::uint64_t>> keys_;  // of some rows
  std::unordered_map<group_key, std::size_t, group_key_hash> number_of_;
};

__extension__ typedef __int128 wide_integer;

// What is known of the values of one column in one group.
template <typename T>
struct group_values {
  std::uint64_t count = 0;
  std::conditional_t<std::is_same_v<T, double>, double, __int128> sum = 0;
  T least{};
  T greatest{};
  std::optional<vector<T>> all;  // for a median
  std::vector<T> coming;

  void add(T value, bool keeps) {
    least = count == 0 || value < least ? value : least;
    greatest = count == 0 || value > greatest ? value : greatest;
    ++count;
    sum += value;
    if (keeps) coming.push_back(value);
  }
  void store(const tag& in) {
    if (coming.empty()) return;
    if (!all) all.emplace(in);
    all->append(coming);
    coming.clear();
  }

  [[nodiscard]] cell answer(const column& of, aggregate what) const {
    if (what == aggregate::count) return static_cast<std::int64_t>(count);
    if (count == 0) return null;
    switch (what) {
      case aggregate::count: break;
      case aggregate::sum: return total();
      case aggregate::mean: return static_cast<double>(sum) / static_cast<double>(count);
      case aggregate::min: return of.cell_of(least);
      case aggregate::max: return of.cell_of(greatest);
      case aggregate::median: return quantile_of(*all, known(), 0.5).value();
    }
    return null;
  }

 private:
  // As far as a quantile needs it.
  [[nodiscard]] summary<T> known() const {
    return summary<T>({.count = count, .least = bits_of(least), .greatest = bits_of(greatest)});
  }
  [[nodiscard]] cell total() const {
    if constexpr (std::is_same_v<T, double>) {
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

// An aggregate of one column, for all groups.
class group_collector {
 public:
  virtual ~group_collector() = default;
  // The rows from `first` on belong to these of `groups` groups.
  virtual void add(std::size_t first, std::span<const std::size_t> group_of, std::size_t groups) = 0;
  // Requires: add() knew of as many groups.
  [[nodiscard]] virtual cell answer(std::size_t group) const = 0;
};

template <typename T>
class collector_of final : public group_collector {
 public:
  collector_of(const tag& in, const column& of, const vector<T>& numbers, aggregate what)
      : in_(in), of_(of), numbers_(numbers), what_(what) {}

  void add(std::size_t first, std::span<const std::size_t> group_of, std::size_t groups) override {
    const interval<T> valid = column::valid(numbers_);
    const bool keeps = what_ == aggregate::median;
    values_.resize(groups);
    {
      const scope here(in_.home());
      for (std::size_t done = 0; done < group_of.size();) {
        const std::span<const T> part = numbers_.chunk(here, first + done, group_of.size() - done);
        for (std::size_t i = 0; i < part.size(); ++i) {
          const std::size_t group = group_of[done + i];
          if (group == group_table::none || !(part[i] >= valid.lowest && part[i] <= valid.highest)) continue;
          values_[group].add(part[i], keeps);
        }
        done += part.size();
      }
    }
    if (!keeps) return;
    for (group_values<T>& one : values_) one.store(in_);
  }
  [[nodiscard]] cell answer(std::size_t group) const override { return values_[group].answer(of_, what_); }

 private:
  const tag& in_;
  const column& of_;
  const vector<T>& numbers_;
  const aggregate what_;
  std::vector<group_values<T>> values_;
};

[[nodiscard]] inline std::unique_ptr<group_collector> collect(const tag& in, const column& of, aggregate what) {
  return of.visit([&](const auto& numbers) -> std::unique_ptr<group_collector> {
    using T = typename std::remove_cvref_t<decltype(numbers)>::value_type;
    return std::make_unique<collector_of<T>>(in, of, numbers, what);
  });
}

}  // namespace detail

inline dataframe dataframe::group_by(const std::vector<std::string>& keys,
                                     const std::vector<wanted>& aggregates) const {
  std::vector<const column*> key_columns;
  for (const std::string& name : keys) key_columns.push_back(&(*this)[name]);
  std::vector<column_type> types;
  std::vector<std::unique_ptr<detail::group_collector>> collectors;
  for (const wanted& one : aggregates) {
    const column& of = (*this)[one.name];
    types.push_back(detail::type_of_aggregate(one.name, of.type(), one.what));
    collectors.push_back(detail::collect(in_, of, one.what));
  }
  detail::group_table table(key_columns);
  std::vector<std::size_t> group_of;
  for (std::size_t first = 0; first < rows(); first += group_of.size()) {
    group_of.resize(std::min(rows_at_a_time, rows() - first));
    table.number(first, group_of);
    for (const auto& one : collectors) one->add(first, group_of, table.size());
  }
  const auto sorted = table.sorted();
  dataframe grouped(in_);
  grouped.where_ = where_;
  grouped.costs_ = costs_;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    column values(in_, key_columns[i]->type());
    for (const auto& [key, group] : sorted) values.append(table.cell_with(i, key));
    grouped.add(keys[i], std::move(values));
  }
  for (std::size_t i = 0; i < aggregates.size(); ++i) {
    column values(in_, types[i]);
    for (const auto& [key, group] : sorted) values.append(collectors[i]->answer(group));
    grouped.add(aggregates[i].name + "_" + std::string(name_of(aggregates[i].what)), std::move(values));
  }
  return grouped;
}

}  // namespace far
