// far::dataframe: a table of typed columns in far memory (AIFM, section 8.1; docs/dataframe.md).
//
//     far::dataframe trips(farheap);
//     trips.add("vendor", far::column_type::text);
//     trips.add("km", far::column_type::float64);
//     trips.append({"A", 3.5});
//     const far::dataframe far_ones = trips.take(trips["km"].rows_between(100.0, far::null));
//     const far::dataframe of_vendors = trips.group_by({"vendor"}, {{"km", far::aggregate::mean}});
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "far/column.h"
#include "far/detail/api.h"
#include "far/detail/frame_walk.h"
#include "far/scope.h"
#include "far/vector.h"

namespace far {

enum class order : std::uint8_t { ascending, descending };
enum class join_kind : std::uint8_t { inner, left };
enum class aggregate : std::uint8_t { count, sum, mean, min, max, median };

[[nodiscard]] inline std::string_view name_of(aggregate what) {
  constexpr std::string_view names[] = {"count", "sum", "mean", "min", "max", "median"};
  return names[static_cast<std::size_t>(what)];
}

// All columns have the same number of rows, and lie in the same far heap. A column that gets values of its own, as by
// frame["km"].append(), must get as many as the others before the frame is used as a whole again: otherwise functions
// of the frame throw std::logic_error. References to columns stay valid as long as the frame lives, also when columns
// are added, or the frame is moved. Move-only. Functions that are const return new frames in the same far heap, and may
// run at a time; so may all functions of different frames, also of those that were made of one another. They throw
// std::out_of_range when there is no such column, and std::invalid_argument when the columns do not have the types that
// they need; the messages name the column.
class FAR_API dataframe {
 public:
  // `in` is the runtime, or one of its tags. Frames of few rows lie on few servers: many of them are spread by tags
  // with different numbers (far::tag::side_by_side()).
  explicit dataframe(const tag& in);
  dataframe(dataframe&&) noexcept;
  dataframe& operator=(dataframe&&) noexcept;
  ~dataframe();

  [[nodiscard]] std::size_t rows() const { return columns_.empty() ? 0 : columns_.front()->values.size(); }
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool has(std::string_view name) const { return find(name) < columns_.size(); }
  [[nodiscard]] const tag& home() const { return in_; }

  [[nodiscard]] const column& operator[](std::string_view name) const { return columns_[require(name)]->values; }
  [[nodiscard]] column& operator[](std::string_view name) { return columns_[require(name)]->values; }
  // By its number, from the left. Requires: it exists.
  [[nodiscard]] const column& column_at(std::size_t number) const { return columns_[number]->values; }
  [[nodiscard]] column& column_at(std::size_t number) { return columns_[number]->values; }

  // A new column on the right, of nulls if there are rows. Throws std::invalid_argument when there is one of that name.
  column& add(std::string name, column_type type);
  // Likewise, with values; it has as many as there are rows, and lies in the frame's far heap.
  column& add(std::string name, column values);

  // A row, with a cell for each column. Strong exception guarantee. Throws what column::append() does, of which a
  // value of another type and the like are found first, and std::invalid_argument when there are more or fewer cells.
  void append(std::span<const cell> row);
  void append(std::initializer_list<cell> row) { append(std::span(row.begin(), row.size())); }

  // Throws std::logic_error, which names a column, unless all columns have the same number of rows.
  void require_equal_columns() const;

  // Where the questions about all columns are answered, also about those that come later; see far::placement.
  void place(placement where);

  // A new column `name`, of what `make` returns for the values of `inputs` in the same row; null where one of them is.
  // Arguments are std::int64_t (also for times, their seconds), double or bool, as the columns are; it returns such a
  // value. For instance: derive<double, double>("sum", {"a", "b"}, [](double a, double b) { return a + b; }).
  // Requires, as derive_together() and rows_where() do: the frame does not change meanwhile, and what is called changes
  // none of its columns, because values are read ahead on other threads. Throws std::logic_error when columns or rows
  // came or went.
  template <typename... Arguments, typename Make>
  column& derive(std::string name, const std::array<std::string_view, sizeof...(Arguments)>& inputs, const Make& make) {
    derive_together<Arguments...>({std::move(name)}, inputs,
                                  [&](Arguments... values) { return std::tuple(make(values...)); });
    return columns_.back()->values;
  }
  // Several new columns in one walk over the inputs: `make` returns a std::tuple with a value for each name. For
  // instance: derive_together<double>({"root", "is_small"}, {"a"}, [](double a) { return std::tuple(std::sqrt(a), a <
  // 1); }).
  template <typename... Arguments, typename Make>
  void derive_together(
      std::array<std::string, std::tuple_size_v<std::invoke_result_t<const Make&, Arguments...>>> names,
      const std::array<std::string_view, sizeof...(Arguments)>& inputs, const Make& make) {
    for (const std::string& name : names) {
      if (has(name) || std::ranges::count(names, name) > 1) throw_one_only(name);
    }
    using results = std::invoke_result_t<const Make&, Arguments...>;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      std::tuple fresh{detail::derived_column<std::tuple_element_t<I, results>>(in_)...};
      scan<Arguments...>(
          inputs,
          [&](std::size_t, bool is_any_null, Arguments... values) {
            if (is_any_null) return (std::get<I>(fresh).add_null(), ...);
            const results made = make(values...);
            (std::get<I>(fresh).add(std::get<I>(made)), ...);
          },
          [&] { (std::get<I>(fresh).store(), ...); });
      (add(std::move(names[I]), std::move(std::get<I>(fresh)).take()), ...);
    }(std::make_index_sequence<std::tuple_size_v<results>>());
  }

  // The rows for whose values `is_wanted` returns true; those with a null among them are not. Arguments as of derive().
  template <typename... Arguments, typename Predicate>
  [[nodiscard]] vector<std::size_t> rows_where(const std::array<std::string_view, sizeof...(Arguments)>& inputs,
                                               const Predicate& is_wanted) const {
    vector<std::size_t> found(in_);
    std::vector<std::size_t> some;
    scan<Arguments...>(
        inputs,
        [&](std::size_t row, bool is_any_null, Arguments... values) {
          if (!is_any_null && is_wanted(values...)) some.push_back(row);
        },
        [&] {
          found.append(some);
          some.clear();
        });
    return found;
  }

  // Rows by their indices, in that order. Throws std::out_of_range.
  [[nodiscard]] dataframe take(const vector<std::size_t>& rows) const;
  [[nodiscard]] dataframe filter(std::string_view name, const cell& lowest, const cell& highest) const;

  // By the values of a column, texts byte by byte; nulls come last. Equal ones keep their order.
  [[nodiscard]] dataframe sort(std::string_view name, order direction = order::ascending) const;

  // The `count` rows with the largest values of a column, the largest first, or with the smallest; those with equal
  // values in their order, and of those with the last value the first. Rows with a null are not among them. Costs a few
  // questions about the column. Throws std::invalid_argument for a column of text.
  [[nodiscard]] dataframe largest(std::string_view name, std::size_t count) const;
  [[nodiscard]] dataframe smallest(std::string_view name, std::size_t count) const;

  // Rows of this frame beside those of `right` with an equal value in the column `on`: for each row on the left in its
  // order, those on the right in theirs. With join_kind::left, a row without any stands beside nulls. Null equals
  // nothing. Columns on the right with a name that the left has get "_right" behind it; `on` is there once. An index of
  // the right side is kept in far memory.
  [[nodiscard]] dataframe join(const dataframe& right, std::string_view on, join_kind kind = join_kind::inner) const;

  // A row for each different combination of the values of `keys`, at most four, in ascending order; rows with a null
  // among them are left out. Without aggregates, these are the different rows of the keys. Behind the keys stands a
  // column "COLUMN_AGGREGATE" for each aggregate: null for a group without a value, except for counts. Medians of more
  // than 256 groups have all values in far memory; the groups themselves are in local memory.
  struct wanted {
    std::string name;
    aggregate what;
  };
  [[nodiscard]] dataframe group_by(const std::vector<std::string>& keys, const std::vector<wanted>& aggregates) const;

 private:
  static constexpr std::size_t rows_at_a_time = 8192;

  struct named_column {
    std::string name;
    column values;
  };

  [[noreturn]] static void throw_one_only(const std::string& name);
  [[noreturn]] static void throw_changed();
  [[nodiscard]] std::size_t find(std::string_view name) const;
  [[nodiscard]] std::size_t require(std::string_view name) const;

  // Calls visit(row, whether a value is null, values...) for all rows, and after some rows pause().
  template <typename... Arguments, typename Visit, typename Pause>
  void scan(const std::array<std::string_view, sizeof...(Arguments)>& inputs, const Visit& visit,
            const Pause& pause) const {
    static_assert(sizeof...(Arguments) > 0);
    require_equal_columns();
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      std::tuple all{detail::number_reader<Arguments>((*this)[inputs[I]], inputs[I])...};
      const detail::walk how(in_, ((*this)[inputs[I]].bytes() + ...));
      const auto size = [&] { return std::array{columns_.size(), rows(), (*this)[inputs[I]].size()...}; };
      const auto size_before = size();
      for (std::size_t first = 0; first < rows(); first += rows_at_a_time) {
        const std::size_t count = std::min(rows_at_a_time, rows() - first);
        (std::get<I>(all).await(how, first, count), ...);
        const scope here(in_.home());
        const std::tuple parts{std::get<I>(all).chunk(how, here, first, count)...};
        for (std::size_t i = 0; i < count; ++i) {
          visit(first + i, (detail::is_null<Arguments>(std::get<I>(parts)[i]) || ...),
                static_cast<Arguments>(std::get<I>(parts)[i])...);
        }
        if (size() != size_before) throw_changed();
        pause();
      }
    }(std::index_sequence_for<Arguments...>{});
  }

  tag in_;
  placement where_ = placement::automatic;
  std::shared_ptr<detail::frame_costs> costs_ = std::make_shared<detail::frame_costs>();
  std::vector<std::unique_ptr<named_column>> columns_;
  std::vector<column::any_number> row_;  // of append()
};

}  // namespace far

#if defined(FARHEAP_CHECKED)
#include "far/detail/frame_code.h"
#include "far/detail/frame_groups.h"
#include "far/detail/frame_join.h"
#endif
