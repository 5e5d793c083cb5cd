// far::dataframe::group_by().
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
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
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  explicit group_table(const std::vector<const column*>& keys) {
    if (keys.empty() || keys.size() > most_group_keys) {
      throw std::invalid_argument("a data frame is grouped by one to four columns");
    }
    for (const column* const one : keys) readers_.emplace_back(*one);
  }

  // The groups of the rows from `first` on; `none` for a row with a null.
  void number(std::size_t first, std::span<std::uint32_t> groups) {
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
      groups[row] = is_any_null ? none : number_of(key);
    }
  }

  [[nodiscard]] std::size_t size() const { return number_of_.size(); }
  // The groups in ascending order of their keys.
  [[nodiscard]] std::vector<std::pair<group_key, std::uint32_t>> sorted() const {
    std::vector<std::pair<group_key, std::uint32_t>> all(number_of_.begin(), number_of_.end());
    std::sort(all.begin(), all.end());
    return all;
  }
  [[nodiscard]] cell cell_with(std::size_t column_number, const group_key& key) const {
    return readers_[column_number].cell_with(key[column_number]);
  }

 private:
  [[nodiscard]] std::uint32_t number_of(const group_key& key) {
    if (number_of_.size() >= none) throw std::length_error("a data frame has too many groups");
    return number_of_.try_emplace(key, static_cast<std::uint32_t>(number_of_.size())).first->second;
  }

  std::vector<key_reader> readers_;
  std::vector<std::vector<std::uint64_t>> keys_;  // of some rows
  std::unordered_map<group_key, std::uint32_t, group_key_hash> number_of_;
};

__extension__ typedef __int128 wide_integer;

// What is known of the values of one column in one group.
template <typename T>
struct group_values {
  using sum_type = std::conditional_t<std::is_same_v<T, double>, double, wide_integer>;

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
      case aggregate::median: return quantile_of(*all, known(), 0.5).value();
    }
    return null;
  }

 private:
  // As far as a quantile needs it.
  [[nodiscard]] summary<T> known() const {
    return summary<T>({.count = bounded, .least = bits_of(least), .greatest = bits_of(greatest)});
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

// The rows from `first` on belong to these groups, of which there are so many up to now.
struct grouped_rows {
  std::size_t first = 0;
  std::span<const std::uint32_t> group_of;
  std::span<const std::uint8_t> short_group_of;  // the same; meaningless when the groups are more than most_groups
  std::size_t groups = 0;
};

// The aggregates of one column, for all groups.
class group_collector {
 public:
  virtual ~group_collector() = default;
  virtual void want(aggregate what) = 0;
  // After the last want().
  virtual void begin() = 0;
  virtual void add(const grouped_rows& rows) = 0;
  // Requires: add() knew of as many groups.
  [[nodiscard]] virtual cell answer(std::size_t group, aggregate what) const = 0;
};

// Sums, counts and bounds of a few groups are questions about pages, wherever these are. More groups, and the values of
// medians, are collected row by row from pages that are here. Which of the two it is depends on the keys alone, so that
// floating point sums are the same, bit for bit, wherever the columns are.
template <typename T>
class collector_of final : public group_collector {
 public:
  collector_of(const tag& in, const column& of, const vector<T>& numbers) : in_(in), of_(of), numbers_(numbers) {}

  void want(aggregate what) override {
    needs_sums_ |= what == aggregate::sum || what == aggregate::mean;
    keeps_ |= what == aggregate::median;
    needs_bounds_ |= what == aggregate::min || what == aggregate::max || keeps_;
  }
  void begin() override {
    needs_sums_ |= !needs_bounds_;  // for their counts
    where_ = keeps_ ? work::here : of_.place_groups((needs_sums_ ? 1 : 0) + (needs_bounds_ ? 1 : 0));
  }

  void add(const grouped_rows& rows) override {
    values_.resize(rows.groups);
    const bool are_few = (!needs_sums_ || rows.groups <= most_groups_of<T>(reduction_kind::group_sums)) &&
                         (!needs_bounds_ || rows.groups <= most_groups_of<T>(reduction_kind::group_bounds));
    if (are_few && rows.groups > 0) {
      of_.ask_about_groups(where_, [&] {
        if (needs_sums_) add_sums(rows);
        if (needs_bounds_) add_bounds(rows);
      });
    }
    if (are_few && !keeps_) return;
    add_row_by_row(rows, !are_few);
    if (!keeps_) return;
    for (group_values<T>& one : values_) one.store(in_);
  }
  [[nodiscard]] cell answer(std::size_t group, aggregate what) const override {
    return values_[group].answer(of_, what);
  }

 private:
  // Calls use(group, how many values it has, values of the answer) for the groups of each page.
  template <typename Use>
  void ask(const grouped_rows& rows, reduction_kind kind, const Use& use) {
    const interval<T> valid = column::valid(numbers_);
    const reduction how{.type = number_type_of<T>(),
                        .lowest = bits_of(valid.lowest),
                        .highest = bits_of(valid.highest),
                        .kind = kind,
                        .groups = static_cast<std::uint8_t>(rows.groups)};
    const std::size_t counts_at = group_values_bytes(kind, sizeof(T), std::is_integral_v<T>, rows.groups);
    const auto visit = [&](std::size_t, std::size_t, const std::byte* answer) {
      for (std::size_t group = 0; group < rows.groups; ++group) {
        std::uint16_t count = 0;
        std::memcpy(&count, answer + counts_at + group * sizeof count, sizeof count);
        if (count > 0) use(values_[group], count, answer, group);
      }
    };
    numbers_.visit_group_answers(rows.first, rows.short_group_of, how, visit, where_);
  }
  void add_sums(const grouped_rows& rows) {
    using sum_type = std::conditional_t<std::is_same_v<T, double>, double,
                                        std::conditional_t<sizeof(T) == 8, wide_integer, std::int64_t>>;
    ask(rows, reduction_kind::group_sums,
        [](group_values<T>& to, std::uint16_t count, const std::byte* answer, std::size_t group) {
          sum_type sum = 0;
          std::memcpy(&sum, answer + group * sizeof sum, sizeof sum);
          to.sum += sum;
          to.count += count;
        });
  }
  void add_bounds(const grouped_rows& rows) {
    ask(rows, reduction_kind::group_bounds,
        [](group_values<T>& to, std::uint16_t count, const std::byte* answer, std::size_t group) {
          std::array<T, 2> bounds;
          std::memcpy(bounds.data(), answer + group * sizeof bounds, sizeof bounds);
          to.add_bounds(count, bounds[0], bounds[1]);
        });
  }
  void add_row_by_row(const grouped_rows& rows, bool adds) {
    const interval<T> valid = column::valid(numbers_);
    for (std::size_t done = 0; done < rows.group_of.size();) {
      const scope here(in_.home());
      const std::span<const T> part = numbers_.chunk(here, rows.first + done, rows.group_of.size() - done);
      for (std::size_t i = 0; i < part.size(); ++i) {
        const std::uint32_t group = rows.group_of[done + i];
        if (group == group_table::none || !(part[i] >= valid.lowest && part[i] <= valid.highest)) continue;
        if (adds) values_[group].add(part[i]);
        if (keeps_) values_[group].coming.push_back(part[i]);
      }
      done += part.size();
    }
  }

  const tag& in_;
  const column& of_;
  const vector<T>& numbers_;
  bool needs_sums_ = false;
  bool needs_bounds_ = false;
  bool keeps_ = false;
  work where_ = work::here;
  std::vector<group_values<T>> values_;
};

[[nodiscard]] inline std::unique_ptr<group_collector> collect(const tag& in, const column& of) {
  return of.visit([&](const auto& numbers) -> std::unique_ptr<group_collector> {
    using T = typename std::remove_cvref_t<decltype(numbers)>::value_type;
    return std::make_unique<collector_of<T>>(in, of, numbers);
  });
}

// Calls add(rows) for all rows, many at a time.
template <typename Add>
void visit_grouped_rows(group_table& table, std::size_t rows, const Add& add) {
  constexpr std::size_t rows_of_keys = 8192;
  constexpr std::size_t most_rows = 32 * rows_of_keys;
  std::vector<std::uint32_t> group_of;
  std::vector<std::uint8_t> short_group_of;
  for (std::size_t first = 0; first < rows; first += group_of.size()) {
    group_of.resize(std::min(most_rows, rows - first));
    for (std::size_t done = 0; done < group_of.size(); done += rows_of_keys) {
      const std::size_t now = std::min(rows_of_keys, group_of.size() - done);
      table.number(first + done, std::span(group_of).subspan(done, now));
    }
    short_group_of.resize(group_of.size());
    std::transform(group_of.begin(), group_of.end(), short_group_of.begin(), [](std::uint32_t group) {
      return static_cast<std::uint8_t>(std::min<std::uint32_t>(group, no_group));
    });
    add(grouped_rows{first, group_of, short_group_of, table.size()});
  }
}

}  // namespace detail

inline dataframe dataframe::group_by(const std::vector<std::string>& keys,
                                     const std::vector<wanted>& aggregates) const {
  std::vector<const column*> key_columns;
  for (const std::string& name : keys) key_columns.push_back(&(*this)[name]);
  std::vector<column_type> types;
  std::map<std::string, std::unique_ptr<detail::group_collector>> collectors;
  for (const wanted& one : aggregates) {
    const column& of = (*this)[one.name];
    types.push_back(detail::type_of_aggregate(one.name, of.type(), one.what));
    std::unique_ptr<detail::group_collector>& collector = collectors[one.name];
    if (collector == nullptr) collector = detail::collect(in_, of);
    collector->want(one.what);
  }
  detail::group_table table(key_columns);
  for (const auto& [name, one] : collectors) one->begin();
  detail::visit_grouped_rows(table, rows(), [&](const detail::grouped_rows& some) {
    for (const auto& [name, one] : collectors) one->add(some);
  });
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
    for (const auto& [key, group] : sorted)
      values.append(collectors.at(aggregates[i].name)->answer(group, aggregates[i].what));
    grouped.add(aggregates[i].name + "_" + std::string(name_of(aggregates[i].what)), std::move(values));
  }
  return grouped;
}

}  // namespace far
