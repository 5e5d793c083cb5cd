// far::dataframe::group_by().
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "far/dataframe.h"
#include "far/detail/api.h"
#include "far/detail/frame_keys.h"
#include "far/detail/group_medians.h"

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

// Numbers the groups in the order in which they are found. Where the keys can only have few combinations, as the
// statistics of their columns say, these are indices of an array; otherwise they are hashed.
class group_table {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  // `how`: the walk over the keys, and over the columns of the aggregates.
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
  }

  // The groups of the rows from `first` on; `none` for a row with a null.
  void number(std::size_t first, std::span<std::uint32_t> groups) {
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      keys_[i].resize(groups.size());
      readers_[i].read(how_, first, keys_[i]);
    }
    if (number_of_index_.empty()) return number_by_hash(groups);
    indices_.assign(groups.size(), 0);
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      const std::uint64_t least = ranges_[i].least;
      const std::uint64_t of_null = ranges_[i].greatest - least + 1;
      for (std::size_t row = 0; row < groups.size(); ++row) {
        indices_[row] =
            static_cast<std::uint32_t>(indices_[row] * (of_null + 1) + std::min(keys_[i][row] - least, of_null));
      }
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
};

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
  // Before add(), whether sample() is called with some rows, and its column is prefetched for it.
  [[nodiscard]] virtual bool wants_sample() const = 0;
  virtual void prefetch(std::size_t first, std::size_t rows) const = 0;
  virtual void sample(const grouped_rows& rows) = 0;
  virtual void add(const grouped_rows& rows) = 0;
  // All rows have been added. Returns whether they have to be added again.
  [[nodiscard]] virtual bool next() = 0;
  // Requires: add() knew of as many groups.
  [[nodiscard]] virtual cell answer(std::size_t group, aggregate what) const = 0;
};

// Sums, counts and bounds of a few groups are questions about pages, wherever these are. More groups are collected row
// by row from pages that are here. Which of the two it is depends on the keys alone, so that floating point sums are
// the same, bit for bit, wherever the columns are. Medians are counted in pages that are here, in several passes; of
// many groups, all values are collected.
template <typename T>
class collector_of final : public group_collector {
 public:
  collector_of(const walk& how, const column& of, const vector<T>& numbers) : how_(how), of_(of), numbers_(numbers) {}

  void want(aggregate what) override {
    needs_counts_ |= what == aggregate::count;
    needs_sums_ |= what == aggregate::sum || what == aggregate::mean;
    needs_bounds_ |= what == aggregate::min || what == aggregate::max;
    needs_medians_ |= what == aggregate::median;
  }
  void begin() override {
    if (needs_medians_) medians_.emplace(of_.known(numbers_));
    // Each row has a value: those of a group are as many as its rows.
    counts_rows_ = of_.known(numbers_).count() == numbers_.size();
    needs_sums_ |= needs_counts_ && !needs_bounds_ && !counts_rows_;
    where_ = needs_medians_ ? work::here : of_.place_groups((needs_sums_ ? 1 : 0) + (needs_bounds_ ? 1 : 0));
  }

  [[nodiscard]] bool wants_sample() const override { return medians_.has_value(); }
  void prefetch(std::size_t first, std::size_t rows) const override { numbers_.prefetch(first, rows); }
  void sample(const grouped_rows& rows) override {
    for_parts(rows, [&](std::span<const std::uint32_t> groups, std::span<const T> numbers) {
      medians_->sample(groups, numbers, of_.valid(numbers_));
    });
  }

  void add(const grouped_rows& rows) override {
    values_.resize(rows.groups);
    if (pass_ > 0) return add_row_by_row(rows, false);
    if (counts_rows_ && !needs_sums_ && !needs_bounds_) count_rows(rows);
    const bool are_few = (!needs_sums_ || rows.groups <= most_groups_of<T>(reduction_kind::group_sums)) &&
                         (!needs_bounds_ || rows.groups <= most_groups_of<T>(reduction_kind::group_bounds));
    const bool is_any = (needs_sums_ || needs_bounds_) && rows.groups > 0;
    if (is_any && are_few) {
      of_.ask_about_groups(where_, [&] {
        if (needs_sums_) add_sums(rows);
        if (needs_bounds_) add_bounds(rows);
      });
    }
    if (medians_ && !medians_->expect(rows.groups)) medians_.reset();
    if ((is_any && !are_few) || medians_) add_row_by_row(rows, is_any && !are_few);
  }
  [[nodiscard]] bool next() override {
    ++pass_;
    if (!needs_medians_) return false;
    // Another pass, in which all values are stored.
    return medians_ ? medians_->next() : pass_ == 1;
  }
  [[nodiscard]] cell answer(std::size_t group, aggregate what) const override {
    if (what != aggregate::median) return values_[group].answer(of_, what);
    if (!medians_) return values_[group].stored_median();
    const std::optional<double> found = medians_->of(group);
    return found ? cell(*found) : cell(null);
  }

 private:
  void count_rows(const grouped_rows& rows) {
    for (const std::uint32_t group : rows.group_of) {
      if (group != group_table::none) ++values_[group].count;
    }
  }
  // Calls use(group, how many values it has, values of the answer) for the groups of each page.
  template <typename Use>
  void ask(const grouped_rows& rows, reduction_kind kind, const Use& use) {
    const interval<T> valid = of_.valid(numbers_);
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
    using sum_type = std::conditional_t<std::is_floating_point_v<T>, double,
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
  // Calls use(groups, numbers) for parts of the rows.
  template <typename Use>
  void for_parts(const grouped_rows& rows, const Use& use) const {
    for (std::size_t done = 0; done < rows.group_of.size();) {
      const scope here(of_.home().home());
      const std::span<const T> part = how_.chunk(numbers_, here, rows.first + done, rows.group_of.size() - done);
      use(rows.group_of.subspan(done, part.size()), part);
      done += part.size();
    }
  }
  // `adds`: to sums and bounds.
  void add_row_by_row(const grouped_rows& rows, bool adds) {
    const interval<T> valid = of_.valid(numbers_);
    const bool stores = needs_medians_ && !medians_ && pass_ > 0;
    for_parts(rows, [&](std::span<const std::uint32_t> groups, std::span<const T> part) {
      if (medians_) medians_->add(groups, part, valid);
      for (std::size_t i = 0; (adds || stores) && i < part.size(); ++i) {
        if (groups[i] == group_table::none || !(part[i] >= valid.lowest && part[i] <= valid.highest)) continue;
        if (adds) values_[groups[i]].add(part[i]);
        if (stores) values_[groups[i]].coming.push_back(part[i]);
      }
    });
    if (!stores) return;
    for (group_values<T>& one : values_) one.store(of_.home());
  }

  walk how_;
  const column& of_;
  const vector<T>& numbers_;
  bool needs_counts_ = false;
  bool needs_sums_ = false;
  bool needs_bounds_ = false;
  bool needs_medians_ = false;
  bool counts_rows_ = false;
  work where_ = work::here;
  unsigned pass_ = 0;
  std::optional<group_medians<T>> medians_;  // as long as there are few groups
  std::vector<group_values<T>> values_;
};

[[nodiscard]] inline std::unique_ptr<group_collector> collect(const walk& how, const column& of) {
  return of.visit([&](const auto& numbers) -> std::unique_ptr<group_collector> {
    using T = typename std::remove_cvref_t<decltype(numbers)>::value_type;
    return std::make_unique<collector_of<T>>(how, of, numbers);
  });
}

// Shows collectors some rows of a long column, here and there, so that the walk over all of them knows where to look.
inline void sample_rows(group_table& table, std::size_t rows, const std::vector<group_collector*>& collectors) {
  constexpr std::size_t pieces = 64;
  constexpr std::size_t rows_of_piece = 1024;
  if (rows < 4 * pieces * rows_of_piece) return;
  std::vector<group_collector*> wanting;
  std::ranges::copy_if(collectors, std::back_inserter(wanting), &group_collector::wants_sample);
  if (wanting.empty()) return;
  const auto first_of = [&](std::size_t piece) { return rows / pieces * piece / rows_of_piece * rows_of_piece; };
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    table.prefetch(first_of(piece), rows_of_piece);
    for (const group_collector* const one : wanting) one->prefetch(first_of(piece), rows_of_piece);
  }
  std::vector<std::uint32_t> group_of(rows_of_piece);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    table.number(first_of(piece), group_of);
    for (group_collector* const one : wanting) one->sample({first_of(piece), group_of, {}, table.size()});
  }
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

FAR_LIBRARY_CODE dataframe dataframe::group_by(const std::vector<std::string>& keys,
                                               const std::vector<wanted>& aggregates) const {
  std::vector<const column*> key_columns;
  for (const std::string& name : keys) key_columns.push_back(&(*this)[name]);
  std::set<std::string> walked(keys.begin(), keys.end());
  for (const wanted& one : aggregates) walked.insert(one.name);
  std::size_t bytes = 0;
  for (const std::string& name : walked) bytes += (*this)[name].bytes();
  const detail::walk how(in_, bytes);
  std::vector<column_type> types;
  std::map<std::string, std::unique_ptr<detail::group_collector>> collectors;
  for (const wanted& one : aggregates) {
    const column& of = (*this)[one.name];
    types.push_back(detail::type_of_aggregate(one.name, of.type(), one.what));
    std::unique_ptr<detail::group_collector>& collector = collectors[one.name];
    if (collector == nullptr) collector = detail::collect(how, of);
    collector->want(one.what);
  }
  detail::group_table table(key_columns, how);
  std::vector<detail::group_collector*> busy;
  for (const auto& [name, one] : collectors) {
    one->begin();
    busy.push_back(one.get());
  }
  detail::sample_rows(table, rows(), busy);
  do {
    detail::visit_grouped_rows(table, rows(), [&](const detail::grouped_rows& some) {
      for (detail::group_collector* const one : busy) one->add(some);
    });
    std::erase_if(busy, [](detail::group_collector* one) { return !one->next(); });
  } while (!busy.empty());
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
