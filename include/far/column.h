// A column of a far::dataframe: values of one type, or nulls, in far memory (docs/dataframe.md).
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "far/detail/api.h"
#include "far/detail/column_statistics.h"
#include "far/detail/question_costs.h"
#include "far/detail/shared_texts.h"
#include "far/query.h"
#include "far/summary.h"
#include "far/vector.h"

namespace far {

// Seconds since 1970 began, without leap seconds.
struct timestamp {
  std::int64_t seconds = 0;

  auto operator<=>(const timestamp&) const = default;
};

// A value, or null.
using cell = std::variant<std::monostate, std::int64_t, double, bool, timestamp, std::string>;
inline constexpr std::monostate null{};

enum class column_type : std::uint8_t { int64, float64, boolean, time, text };

[[nodiscard]] inline std::string_view name_of(column_type type) {
  constexpr std::string_view names[] = {"int64", "float64", "boolean", "time", "text"};
  return names[static_cast<std::size_t>(type)];
}

// Where the questions about a column are answered (far::work); the results are the same. `automatic`: each part of a
// question as parts before it were cheaper (docs/decisions/0132-parts-of-questions.md). A column that takes at most an
// eighth of the local budget, so that it stays, is fetched once it has been asked about as often as fetching would have
// cost (docs/decisions/0080-rent-or-buy.md).
enum class placement : std::uint8_t { automatic, there, here };

namespace detail {

// The home of a column, or of a frame's columns.
[[nodiscard]] inline tag side_by_side(const tag& in) {
  return in.is_side_by_side() ? in : in.side_by_side();
}

}  // namespace detail

// A null is one of the numbers, so that questions about values are intervals, which far tiers answer: the least
// integer, NaN, 2 for a boolean, -1 for the code of a text. Integers, and times, which are their seconds, take a byte
// each until one comes that needs 2, 4 or 8; then all take as many. A float64 column takes 4 bytes each until a number
// comes that float32 does not have. Texts are codes: indices into a dictionary in local memory, in the order in which
// they came. Move-only. Const operations may run at a time; so may all operations of different columns, also of those
// that were made of one another.
class FAR_API column {
 public:
  using codes = vector<std::int32_t>;

  column(const tag& in, column_type type);
  column(column&&) noexcept;
  column& operator=(column&&) noexcept;
  ~column();

  // The number that is null where the column keeps its numbers as T.
  template <typename T>
  [[nodiscard]] T null_as() const {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
    if constexpr (std::is_same_v<T, std::uint8_t>) return no_flag;
    if constexpr (std::is_same_v<T, std::int32_t>) {
      if (type_ == column_type::text) return no_code;
    }
    return std::numeric_limits<T>::lowest();
  }
  // All values.
  template <typename T>
  [[nodiscard]] interval<T> valid(const vector<T>&) const {
    if constexpr (std::is_floating_point_v<T>) {
      return {};
    } else if constexpr (std::is_same_v<T, std::uint8_t>) {
      return {0, 1};
    } else {
      return {.lowest = static_cast<T>(null_as<T>() + 1)};
    }
  }

  // Calls `with` with the vector of numbers, which is of one of the types of `storage`.
  template <typename Visit>
  decltype(auto) visit(const Visit& with) const {
    return std::visit(with, values_);
  }

  // About all values, which takes no question: it was found when they were appended. Requires: they are kept as T.
  template <typename T>
  [[nodiscard]] summary<T> known(const vector<T>&) const {
    return statistics_.all<T>();
  }

  [[nodiscard]] column_type type() const { return type_; }
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] const tag& home() const;
  // That it takes in far memory.
  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] std::size_t null_count() const { return size() - count(); }
  void place(placement where) { where_ = where; }
  // Learns what pages cost together with other columns of the same far heap.
  void share_costs(std::shared_ptr<detail::frame_costs> costs);

  // Throws std::invalid_argument when the cell is of another type, and std::range_error when it is an integer that
  // stands for null. NaN is null. An integer fits a float64 column. Strong exception guarantee: also a column that was
  // to take more bytes for each value, and could not, is as it was. Texts may have any bytes; only UTF-8 can be
  // exported (far/arrow.h).
  void append(const cell& value);
  // Throws what append() would.
  void check(const cell& value) const;
  // Throws std::out_of_range.
  [[nodiscard]] cell at(std::size_t row) const;

  // The number that stands for a value; of a text its code.
  [[nodiscard]] cell cell_of(std::int64_t number) const;
  [[nodiscard]] cell cell_of(std::int8_t number) const;
  [[nodiscard]] cell cell_of(std::int16_t number) const;
  [[nodiscard]] cell cell_of(float number) const;
  [[nodiscard]] cell cell_of(double number) const;
  [[nodiscard]] cell cell_of(std::uint8_t number) const;
  [[nodiscard]] cell cell_of(std::int32_t number) const;

  // Questions; nulls do not count. Answers are null or nothing when there is no value. sum() throws std::overflow_error
  // as far::summary does. Of booleans, true counts as 1; of texts there are only count() and counts(). Throw
  // std::invalid_argument when the type has no such answer.
  [[nodiscard]] std::size_t count() const;
  [[nodiscard]] cell min() const;
  [[nodiscard]] cell max() const;
  [[nodiscard]] cell sum() const;
  [[nodiscard]] std::optional<double> mean() const;
  [[nodiscard]] std::optional<double> quantile(double fraction) const;
  [[nodiscard]] std::optional<double> median() const;
  // How many values lie from `lowest` to `highest`, and in which rows; null as a bound: no bound.
  [[nodiscard]] std::size_t count_between(const cell& lowest, const cell& highest) const;
  [[nodiscard]] vector<std::size_t> rows_between(const cell& lowest, const cell& highest) const;
  // The rows with this value; of texts too. Null equals nothing.
  [[nodiscard]] vector<std::size_t> rows_equal(const cell& value) const;
  // The rows whose text has this one in it; of a column of text. The dictionary is searched here, and the rows that
  // have what was found in it are asked for where they are. Takes a bit of local memory for each row.
  [[nodiscard]] vector<std::size_t> rows_containing(std::string_view text) const;
  // The `count` largest or smallest values, from the outermost on, or all when there are fewer. Those that occur
  // several times are there as often.
  [[nodiscard]] std::vector<cell> largest(std::size_t count) const;
  [[nodiscard]] std::vector<cell> smallest(std::size_t count) const;
  // The rows of these values, but not in their order (dataframe::largest() has that); of the rows with the last value,
  // the first ones.
  [[nodiscard]] vector<std::size_t> rows_of_largest(std::size_t count) const;
  [[nodiscard]] vector<std::size_t> rows_of_smallest(std::size_t count) const;
  // The different values, in ascending order; they are in local memory.
  [[nodiscard]] std::vector<cell> distinct() const;
  // How often each value occurs, in ascending order of the values. For few different ones: they are in local memory.
  [[nodiscard]] std::vector<std::pair<cell, std::uint64_t>> counts() const;

  // Rows as a new column in the far heap of `rows`, in the order of their indices. Throws std::out_of_range.
  [[nodiscard]] column take(const vector<std::size_t>& rows) const;

  // An empty one of the same type, with the texts that the dictionary has now, and their codes.
  [[nodiscard]] column like(const tag& in) const;

  // For questions about groups of the numbers (group_by()): where one is answered that goes over all of them `passes`
  // times; nothing: each part where it is cheaper. And a part of that one, from whose costs the column learns.
  [[nodiscard]] std::optional<work> place_groups(detail::question_kind kind, unsigned passes) const;
  template <typename Ask>
  void ask_about_groups(detail::question_kind kind, unsigned passes, work where, const Ask& question) const {
    const detail::question_meter meter(home().home());
    question();
    if (where_ == placement::automatic) place_->learn(costs_of_whole(kind), where, meter.finish(), passes);
  }
  // Shared with other columns (detail::frame_costs).
  [[nodiscard]] detail::part_costs& costs_of_parts(detail::question_kind kind) const { return costs_->of_parts(kind); }
  [[nodiscard]] detail::part_costs& costs_of_whole(detail::question_kind kind) const { return costs_->of_whole(kind); }
  // About how many pages of these rows are in the far tier.
  [[nodiscard]] std::size_t pages_away(std::size_t first, std::size_t rows) const;

  [[nodiscard]] const std::vector<std::string>& dictionary() const { return texts_.all(); }
  // -1: no row ever had the text.
  [[nodiscard]] std::int32_t find_code(std::string_view text) const;

  // The numbers themselves, if they are of this type; otherwise null.
  template <typename T>
  [[nodiscard]] const vector<T>* numbers() const {
    return std::get_if<vector<T>>(&values_);
  }
  // Appends numbers as they are, nulls among them. Requires: what numbers of the column have as type, std::int64_t for
  // integers and times, double for float64, or that of the column from which like() made this one. Throws, and appends
  // none: std::invalid_argument where they have another type, std::out_of_range where a text's dictionary lacks a code.
  template <typename T>
  void append_numbers(std::span<const T> numbers);

  static constexpr std::int64_t no_integer = std::numeric_limits<std::int64_t>::min();
  static constexpr double no_real = std::numeric_limits<double>::quiet_NaN();
  static constexpr std::uint8_t no_flag = 2;
  static constexpr std::int32_t no_code = -1;

 private:
  friend class dataframe;

  [[nodiscard]] column take(const vector<std::size_t>& rows, const tag& in) const;

  // append() in steps, so that a frame appends to all of its columns or to none. put() appends the number, or throws
  // and appends nothing; then note() adds it to what is known of all values, or take_back() removes it.
  using any_number = std::variant<std::int64_t, double, std::uint8_t, std::int32_t>;
  [[nodiscard]] any_number number_to_append(const cell& value);
  void put(const any_number& one);
  void note(const any_number& one) noexcept;
  void take_back() noexcept;

  void require_codes(std::span<const std::int32_t> some) const;

  using storage = std::variant<vector<std::int8_t>, vector<std::int16_t>, vector<std::int32_t>, vector<std::int64_t>,
                               vector<float>, vector<double>, vector<std::uint8_t>>;

  static storage make(const tag& in, column_type type);

  // As the column keeps it.
  template <typename T>
  [[nodiscard]] FAR_HIDDEN static T narrowed(std::int64_t number);
  // How many bytes an integer takes, so that all of them have room beside null.
  [[nodiscard]] static std::size_t bytes_for(const detail::integer_statistics& numbers);
  // Calls use(the vector of integers), which then has room for such numbers.
  template <typename Use>
  FAR_HIDDEN void use_integers(const detail::integer_statistics& numbers, const Use& use);
  void append_integers(std::span<const std::int64_t> numbers);
  // So that there is room for them.
  void widen_for(std::span<const double> numbers);
  // Calls use(the vector of reals).
  template <typename Use>
  FAR_HIDDEN void use_reals(const Use& use);
  void append_reals(std::span<const double> numbers);
  template <typename T>
  [[nodiscard]] FAR_HIDDEN static std::vector<T> converted_to(std::span<const std::int64_t> numbers);
  template <typename T, typename Number, typename Convert>
  FAR_HIDDEN static void append_as(vector<T>& to, std::span<const Number> numbers, const Convert& convert);
  template <typename Wide>
  FAR_HIDDEN void widen();
  [[noreturn]] void throw_wrong_type() const;
  void require_numbers(const char* what) const;

  [[nodiscard]] std::int64_t integer_of(const cell& value) const;
  // Of an interval, of which any integer may be a bound. Requires: it is not null.
  [[nodiscard]] std::int64_t bound_of(const cell& value) const;
  [[nodiscard]] double real_of(const cell& value) const;
  [[nodiscard]] std::uint8_t flag_of(const cell& value) const;
  [[nodiscard]] std::int32_t code_to_append(const cell& value);

  void require_order() const;
  template <typename Pick>
  [[nodiscard]] FAR_HIDDEN cell extreme(const Pick& pick) const;

  [[nodiscard]] std::vector<cell> outermost(std::size_t count, detail::numbers_end from) const;
  [[nodiscard]] vector<std::size_t> rows_of_outermost(std::size_t count, detail::numbers_end from) const;

  // Calls answer(detail::question_parts) and learns from its costs (detail/column_asking.h). `passes`: how often the
  // question goes over the numbers.
  template <typename T, typename Answer>
  FAR_HIDDEN auto place_question(const vector<T>& all, detail::question_kind kind, unsigned passes,
                                 const Answer& answer) const;
  // How many numbers lie in the interval.
  template <typename T>
  FAR_HIDDEN std::size_t count_within(const vector<T>& all, const interval<T>& within) const;
  template <typename T>
  FAR_HIDDEN vector<std::size_t> select_rows(const vector<T>& all, const interval<T>& within) const;
  // How many numbers of a byte lie in the interval.
  template <typename T>
  [[nodiscard]] FAR_HIDDEN std::size_t counted(const interval<T>& within) const;
  template <typename T>
  FAR_HIDDEN interval<T> interval_of(const vector<T>& all, const cell& lowest, const cell& highest) const;
  interval<double> interval_of(const vector<double>&, const cell& lowest, const cell& highest) const;
  // The floats of the same interval.
  interval<float> interval_of(const vector<float>&, const cell& lowest, const cell& highest) const;
  interval<std::uint8_t> interval_of(const vector<std::uint8_t>& all, const cell& lowest, const cell& highest) const;

  // A quantile narrows an interval down, mostly in so many steps.
  static constexpr unsigned passes_of_quantile = 4;

  column_type type_;
  placement where_ = placement::automatic;
  storage values_;
  detail::column_statistics statistics_;
  std::unique_ptr<detail::question_place> place_ = std::make_unique<detail::question_place>();  // what questions showed
  std::shared_ptr<detail::frame_costs> costs_ = std::make_shared<detail::frame_costs>();
  // Shared by columns that are made of one another, until one of them appends a new text.
  detail::shared_texts texts_;
};

}  // namespace far

#if defined(FARHEAP_CHECKED)
#include "far/detail/column_code.h"
#include "far/detail/column_questions.h"
#endif
