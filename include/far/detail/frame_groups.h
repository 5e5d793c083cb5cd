// far::dataframe::group_by().
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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
    std::vector<std::vector<std::uint64_t>> keys(readers_.size(), std::vector<std::uint64_t>(groups.size()));
    for (std::size_t i = 0; i < readers_.size(); ++i) readers_[i].read(first, keys[i]);
    for (std::size_t row = 0; row < groups.size(); ++row) {
      group_key key{};
      bool is_any_null = false;
      for (std::size_t i = 0; i < readers_.size(); ++i) {
        key[i] = keys[i][row];
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
      case aggregate::median: return far::median(*all).value();
    }
    return null;
  }

 private:
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

// Answers aggregates about one column for all groups, in the order of `sorted`.
class group_aggregates {
 public:
  group_aggregates(const tag& in, const column& of, bool keeps) : in_(in), of_(of), keeps_(keeps) {}

  // Walks over the column beside the groups of its rows.
  template <typename Groups>
  [[nodiscard]] std::vector<cell> collect(std::size_t groups, const Groups& groups_of, aggregate what,
                                          const std::vector<std::pair<group_key, std::size_t>>& sorted) const {
    return of_.visit([&](const auto& numbers) {
      using T = typename std::remove_cvref_t<decltype(numbers)>::value_type;
      std::vector<group_values<T>> values(groups);
      const interval<T> valid = column::valid(numbers);
      groups_of([&](std::size_t first, std::span<const std::size_t> group_of) {
        const scope here(in_.home());
        for (std::size_t done = 0; done < group_of.size();) {
          const std::span<const T> part = numbers.chunk(here, first + done, group_of.size() - done);
          for (std::size_t i = 0; i < part.size(); ++i) {
            const std::size_t group = group_of[done + i];
            if (group == group_table::none || !(part[i] >= valid.lowest && part[i] <= valid.highest)) continue;
            values[group].add(part[i], keeps_);
          }
          done += part.size();
        }
        if (keeps_) {
          for (group_values<T>& one : values) one.store(in_);
        }
      });
      std::vector<cell> answers;
      for (const auto& [key, group] : sorted) answers.push_back(values[group].answer(of_, what));
      return answers;
    });
  }

 private:
  const tag& in_;
  const column& of_;
  bool keeps_;
};

}  // namespace detail

inline dataframe dataframe::group_by(const std::vector<std::string>& keys,
                                     const std::vector<wanted>& aggregates) const {
  std::vector<const column*> key_columns;
  for (const std::string& name : keys) key_columns.push_back(&(*this)[name]);
  std::vector<column_type> types;
  for (const wanted& one : aggregates) {
    types.push_back(detail::type_of_aggregate(one.name, (*this)[one.name].type(), one.what));
  }
  detail::group_table table(key_columns);
  vector<std::size_t> group_of(in_);
  std::vector<std::size_t> some;
  for (std::size_t first = 0; first < rows(); first += some.size()) {
    some.resize(std::min(rows_at_a_time, rows() - first));
    table.number(first, some);
    group_of.append(some);
  }
  const auto sorted = table.sorted();
  dataframe grouped(in_);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    column values(in_, key_columns[i]->type());
    for (const auto& [key, group] : sorted) values.append(table.cell_with(i, key));
    grouped.add(keys[i], std::move(values));
  }
  for (std::size_t i = 0; i < aggregates.size(); ++i) {
    const wanted& one = aggregates[i];
    const detail::group_aggregates found(in_, (*this)[one.name], one.what == aggregate::median);
    const auto groups_of = [&](const auto& visit) {
      for (std::size_t first = 0; first < rows(); first += some.size()) {
        some.resize(std::min(rows_at_a_time, rows() - first));
        group_of.read(first, std::span<std::size_t>(some));
        visit(first, std::span<const std::size_t>(some));
      }
    };
    column values(in_, types[i]);
    for (const cell& answer : found.collect(table.size(), groups_of, one.what, sorted)) values.append(answer);
    grouped.add(one.name + "_" + std::string(name_of(one.what)), std::move(values));
  }
  return grouped;
}

}  // namespace far
