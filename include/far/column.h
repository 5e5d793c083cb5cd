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
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "far/detail/column_statistics.h"
#include "far/detail/question_costs.h"
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

// Where the questions about a column are answered (far::work); the results are the same. `automatic`: as earlier
// questions were cheaper. A column that takes at most an eighth of the local budget, so that it stays, is fetched once
// it has been asked about as often as fetching would have cost (docs/decisions/0080-rent-or-buy.md).
enum class placement : std::uint8_t { automatic, there, here };

// A null is one of the numbers, so that questions about values are intervals, which far tiers answer: the least
// integer, NaN, 2 for a boolean, -1 for the code of a text. Integers, and times, which are their seconds, take a byte
// each until one comes that needs 2, 4 or 8; then all take as many. A float64 column takes 4 bytes each until a number
// comes that float32 does not have. Texts are codes: indices into a dictionary in local memory, in the order in which
// they came. Move-only. Const operations may run at a time.
class column {
 public:
  using codes = vector<std::int32_t>;

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

 private:
  // In front of what uses them, because their types are deduced, and compilers warn of templates that come later.
  using storage = std::variant<vector<std::int8_t>, vector<std::int16_t>, vector<std::int32_t>, vector<std::int64_t>,
                               vector<float>, vector<double>, vector<std::uint8_t>>;
  // Calls answer(where) and learns from its costs. `passes`: how often the question goes over the numbers.
  template <typename T, typename Answer>
  auto place_question(const vector<T>& all, unsigned passes, const Answer& answer) const {
    const detail::question_meter meter(all.home().home());
    const std::size_t bytes = all.size() * sizeof(T);
    work where = where_ == placement::there ? work::there : work::here;
    if (where_ == placement::automatic) {
      const bool stays = bytes <= meter.budget_bytes() / 8;
      where = place_->choose(costs_->plain, bytes / detail::page_bytes_of_chunks, passes, stays);
    }
    auto found = answer(where);
    const detail::question_cost cost = meter.finish();
    costs_->plain.learn(where, cost);
    place_->learn(costs_->plain, where, cost);
    return found;
  }
  // About the numbers of an interval.
  template <typename T>
  summary<T> summarize(const vector<T>& all, const interval<T>& within) const {
    return place_question(all, 1, [&](work where) { return all.summarize(within, where); });
  }
  template <typename T>
  vector<std::size_t> select_rows(const vector<T>& all, const interval<T>& within) const {
    return place_question(all, 1, [&](work where) {
      return where == work::there ? far::select(all, within) : far::select(far::here(all), within);
    });
  }
  // How many numbers of a byte lie in the interval.
  template <typename T>
  [[nodiscard]] std::size_t counted(const interval<T>& within) const {
    std::size_t found = 0;
    for (int number = within.lowest; number <= within.highest; ++number) {
      found += statistics_.times(static_cast<T>(number));
    }
    return found;
  }
  template <typename T>
  interval<T> interval_of(const vector<T>& all, const cell& lowest, const cell& highest) const {
    interval<T> within = valid(all);
    const bool has_lowest = !std::holds_alternative<std::monostate>(lowest);
    const bool has_highest = !std::holds_alternative<std::monostate>(highest);
    if (type_ == column_type::text) {
      if (has_lowest || has_highest) throw std::invalid_argument("a column of text has no intervals");
      return within;
    }
    const std::int64_t least = has_lowest ? integer_of(lowest) : within.lowest;
    const std::int64_t most = has_highest ? integer_of(highest) : within.highest;
    if (least > within.highest || most < within.lowest) return {1, 0};
    within.lowest = static_cast<T>(std::max<std::int64_t>(least, within.lowest));
    within.highest = static_cast<T>(std::min<std::int64_t>(most, within.highest));
    return within;
  }
  interval<double> interval_of(const vector<double>&, const cell& lowest, const cell& highest) const {
    interval<double> within;
    if (!std::holds_alternative<std::monostate>(lowest)) within.lowest = real_of(lowest);
    if (!std::holds_alternative<std::monostate>(highest)) within.highest = real_of(highest);
    return within;
  }
  // The floats of the same interval.
  interval<float> interval_of(const vector<float>&, const cell& lowest, const cell& highest) const {
    interval<float> within;
    if (!std::holds_alternative<std::monostate>(lowest)) {
      const double bound = real_of(lowest);
      within.lowest = static_cast<float>(bound);
      if (within.lowest < bound) within.lowest = std::nextafter(within.lowest, std::numeric_limits<float>::infinity());
    }
    if (!std::holds_alternative<std::monostate>(highest)) {
      const double bound = real_of(highest);
      within.highest = static_cast<float>(bound);
      if (within.highest > bound)
        within.highest = std::nextafter(within.highest, -std::numeric_limits<float>::infinity());
    }
    return within;
  }
  interval<std::uint8_t> interval_of(const vector<std::uint8_t>& all, const cell& lowest, const cell& highest) const {
    interval<std::uint8_t> within = valid(all);
    if (!std::holds_alternative<std::monostate>(lowest)) within.lowest = flag_of(lowest);
    if (!std::holds_alternative<std::monostate>(highest)) within.highest = flag_of(highest);
    return within;
  }

 public:
  // Calls `with` with the vector of numbers, which is of one of the types above.
  template <typename Visit>
  decltype(auto) visit(const Visit& with) const {
    return std::visit(with, values_);
  }

  // About all values, which takes no question: it was found when they were appended. Requires: they are kept as T.
  template <typename T>
  [[nodiscard]] summary<T> known(const vector<T>&) const {
    return statistics_.all<T>();
  }

  column(const tag& in, column_type type) : type_(type), values_(make(in, type)) {}

  [[nodiscard]] column_type type() const { return type_; }
  [[nodiscard]] std::size_t size() const {
    return visit([](const auto& all) { return all.size(); });
  }
  [[nodiscard]] const tag& home() const {
    return visit([](const auto& all) -> const tag& { return all.home(); });
  }
  // That it takes in far memory.
  [[nodiscard]] std::size_t bytes() const {
    return visit([]<typename T>(const vector<T>& all) { return all.size() * sizeof(T); });
  }
  [[nodiscard]] std::size_t null_count() const { return size() - count(); }
  void place(placement where) { where_ = where; }
  // Learns what pages cost together with other columns of the same far heap.
  void share_costs(std::shared_ptr<detail::frame_costs> costs) { costs_ = std::move(costs); }

  // Throws std::invalid_argument when the cell is of another type, and std::range_error when it is an integer that
  // stands for null. NaN is null. An integer fits a float64 column.
  void append(const cell& value) {
    switch (type_) {
      case column_type::int64:
      case column_type::time: return append_integer(integer_of(value));
      case column_type::float64: return append_real(real_of(value));
      case column_type::boolean: return append_number(flag_of(value));
      case column_type::text: return append_number(code_to_append(value));
    }
  }
  // Throws what append() would.
  void check(const cell& value) const {
    switch (type_) {
      case column_type::int64:
      case column_type::time: return static_cast<void>(integer_of(value));
      case column_type::float64: return static_cast<void>(real_of(value));
      case column_type::boolean: return static_cast<void>(flag_of(value));
      case column_type::text: break;
    }
    const bool fits = std::holds_alternative<std::monostate>(value) || std::holds_alternative<std::string>(value);
    if (!fits) throw_wrong_type();
  }
  // Throws std::out_of_range.
  [[nodiscard]] cell at(std::size_t row) const {
    return visit([&](const auto& all) { return cell_of(all.read(row)); });
  }

  // The number that stands for a value; of a text its code.
  [[nodiscard]] cell cell_of(std::int64_t number) const {
    if (number == no_integer) return null;
    if (type_ == column_type::time) return timestamp{number};
    return number;
  }
  [[nodiscard]] cell cell_of(std::int8_t number) const {
    return number == null_as<std::int8_t>() ? cell(null) : cell_of(std::int64_t{number});
  }
  [[nodiscard]] cell cell_of(std::int16_t number) const {
    return number == null_as<std::int16_t>() ? cell(null) : cell_of(std::int64_t{number});
  }
  [[nodiscard]] cell cell_of(float number) const { return cell_of(static_cast<double>(number)); }
  [[nodiscard]] cell cell_of(double number) const { return std::isnan(number) ? cell(null) : cell(number); }
  [[nodiscard]] cell cell_of(std::uint8_t number) const { return number > 1 ? cell(null) : cell(number == 1); }
  [[nodiscard]] cell cell_of(std::int32_t number) const {
    if (type_ == column_type::text) {
      return number < 0 ? cell(null) : cell((*dictionary_)[static_cast<std::size_t>(number)]);
    }
    return number == null_as<std::int32_t>() ? cell(null) : cell_of(std::int64_t{number});
  }

  // Questions; nulls do not count. Answers are null or nothing when there is no value. sum() throws std::overflow_error
  // as far::summary does. Of booleans, true counts as 1; of texts there are only count() and counts(). Throw
  // std::invalid_argument when the type has no such answer.
  [[nodiscard]] std::size_t count() const {
    return visit([&](const auto& all) { return known(all).count(); });
  }
  [[nodiscard]] cell min() const {
    return extreme([](const auto& found) { return found.min(); });
  }
  [[nodiscard]] cell max() const {
    return extreme([](const auto& found) { return found.max(); });
  }
  [[nodiscard]] cell sum() const {
    require_numbers("sum");
    return visit([&](const auto& all) -> cell {
      const auto found = known(all);
      if (found.count() == 0) return null;
      if constexpr (std::is_same_v<decltype(found.sum()), double>) return found.sum();
      return static_cast<std::int64_t>(found.sum());
    });
  }
  [[nodiscard]] std::optional<double> mean() const {
    require_numbers("mean");
    return visit([&](const auto& all) -> std::optional<double> {
      const auto found = known(all);
      if (found.count() == 0) return std::nullopt;
      return found.mean();
    });
  }
  [[nodiscard]] std::optional<double> quantile(double fraction) const {
    require_numbers("quantile");
    return visit([&](const auto& all) -> std::optional<double> {
      const auto found = known(all);
      return place_question(all, passes_of_quantile, [&](work where) {
        return where == work::there ? detail::quantile_of(all, found, fraction)
                                    : detail::quantile_of(far::here(all), found, fraction);
      });
    });
  }
  [[nodiscard]] std::optional<double> median() const { return quantile(0.5); }
  // How many values lie from `lowest` to `highest`, and in which rows; null as a bound: no bound.
  [[nodiscard]] std::size_t count_between(const cell& lowest, const cell& highest) const {
    return visit([&]<typename T>(const vector<T>& all) -> std::size_t {
      const interval<T> within = interval_of(all, lowest, highest);
      if constexpr (sizeof(T) == 1) return counted(within);
      return summarize(all, within).count();
    });
  }
  [[nodiscard]] vector<std::size_t> rows_between(const cell& lowest, const cell& highest) const {
    return visit([&](const auto& all) { return select_rows(all, interval_of(all, lowest, highest)); });
  }
  // The rows with this value; of texts too. Null equals nothing.
  [[nodiscard]] vector<std::size_t> rows_equal(const cell& value) const {
    if (std::holds_alternative<std::monostate>(value)) {
      return visit([](const auto& all) { return vector<std::size_t>(all.home()); });
    }
    if (type_ != column_type::text) return rows_between(value, value);
    const codes& all = std::get<codes>(values_);
    const std::int32_t code = std::holds_alternative<std::string>(value) ? find_code(std::get<std::string>(value)) : -1;
    if (code < 0) return vector<std::size_t>(all.home());
    return select_rows(all, interval<std::int32_t>{code, code});
  }
  // The rows whose text has this one in it; of a column of text. The dictionary is searched here, and the rows that
  // have what was found in it are asked for where they are. Takes a bit of local memory for each row.
  [[nodiscard]] vector<std::size_t> rows_containing(std::string_view text) const;
  // The `count` largest or smallest values, from the outermost on, or all when there are fewer. Those that occur
  // several times are there as often.
  [[nodiscard]] std::vector<cell> largest(std::size_t count) const {
    return outermost(count, detail::numbers_end::greatest);
  }
  [[nodiscard]] std::vector<cell> smallest(std::size_t count) const {
    return outermost(count, detail::numbers_end::least);
  }
  // The rows of these values, but not in their order (dataframe::largest() has that); of the rows with the last value,
  // the first ones.
  [[nodiscard]] vector<std::size_t> rows_of_largest(std::size_t count) const {
    return rows_of_outermost(count, detail::numbers_end::greatest);
  }
  [[nodiscard]] vector<std::size_t> rows_of_smallest(std::size_t count) const {
    return rows_of_outermost(count, detail::numbers_end::least);
  }
  // The different values, in ascending order; they are in local memory.
  [[nodiscard]] std::vector<cell> distinct() const;
  // How often each value occurs, in ascending order of the values. For few different ones: they are in local memory.
  [[nodiscard]] std::vector<std::pair<cell, std::uint64_t>> counts() const;

  // Rows as a new column, in the order of their indices. Throws std::out_of_range.
  [[nodiscard]] column take(const vector<std::size_t>& rows) const;

  // An empty one of the same type, with the same dictionary.
  [[nodiscard]] column like(const tag& in) const {
    column empty(in, type_);
    visit([&](const auto& all) { empty.values_ = std::remove_cvref_t<decltype(all)>(in); });
    empty.where_ = where_;
    empty.costs_ = costs_;
    empty.dictionary_ = dictionary_;
    empty.code_of_ = code_of_;
    return empty;
  }

  // For questions about groups of the numbers (group_by()): where one is answered that goes over all of them `passes`
  // times; and one about a part of them, from whose costs the column learns.
  [[nodiscard]] work place_groups(unsigned passes) const {
    if (where_ != placement::automatic) return where_ == placement::there ? work::there : work::here;
    const bool stays = bytes() <= home().home().statistics().budget_bytes / 8;
    return place_->choose(costs_->grouped, bytes() / detail::page_bytes_of_chunks, passes, stays);
  }
  template <typename Ask>
  void ask_about_groups(work where, const Ask& question) const {
    const detail::question_meter meter(home().home());
    question();
    const detail::question_cost cost = meter.finish();
    costs_->grouped.learn(where, cost);
    place_->learn(costs_->grouped, where, cost);
  }

  [[nodiscard]] const std::vector<std::string>& dictionary() const { return *dictionary_; }
  // -1: no row ever had the text.
  [[nodiscard]] std::int32_t find_code(std::string_view text) const {
    const auto found = code_of_->find(std::string(text));
    return found == code_of_->end() ? -1 : found->second;
  }

  // The numbers themselves, if they are of this type; otherwise null.
  template <typename T>
  [[nodiscard]] const vector<T>* numbers() const {
    return std::get_if<vector<T>>(&values_);
  }
  // Appends numbers as they are, nulls among them. Requires: what numbers of the column have as type, std::int64_t for
  // integers and times, double for float64, or that of the column from which like() made this one.
  template <typename T>
  void append_numbers(std::span<const T> numbers) {
    if constexpr (std::is_same_v<T, std::int64_t>) {
      append_integers(numbers);
    } else if constexpr (std::is_same_v<T, double>) {
      append_reals(numbers);
    } else {
      auto& all = std::get<vector<T>>(values_);
      all.append(numbers);
      statistics_.add(numbers, valid(all));
    }
  }

  static constexpr std::int64_t no_integer = std::numeric_limits<std::int64_t>::min();
  static constexpr double no_real = std::numeric_limits<double>::quiet_NaN();
  static constexpr std::uint8_t no_flag = 2;
  static constexpr std::int32_t no_code = -1;

 private:
  static storage make(const tag& in, column_type type) {
    switch (type) {
      case column_type::int64:
      case column_type::time: return vector<std::int8_t>(in);
      case column_type::float64: return vector<float>(in);
      case column_type::boolean: return vector<std::uint8_t>(in);
      case column_type::text: break;
    }
    return codes(in);
  }

  template <typename T>
  void append_number(T number) {
    auto& all = std::get<vector<T>>(values_);
    all.push_back(number);
    statistics_.add(std::span<const T>(&number, 1), valid(all));
  }

  // As the column keeps it.
  template <typename T>
  [[nodiscard]] static T narrowed(std::int64_t number) {
    return number == no_integer ? std::numeric_limits<T>::lowest() : static_cast<T>(number);
  }
  // How many bytes an integer takes, so that all of them have room beside null.
  [[nodiscard]] static std::size_t bytes_for(const detail::integer_statistics& numbers) {
    const auto have_room_in = [&]<typename T>(T least) {
      return numbers.count == 0 || (numbers.least > least && numbers.greatest <= std::numeric_limits<T>::max());
    };
    if (have_room_in(std::numeric_limits<std::int8_t>::lowest())) return 1;
    if (have_room_in(std::numeric_limits<std::int16_t>::lowest())) return 2;
    return have_room_in(std::numeric_limits<std::int32_t>::lowest()) ? 4 : 8;
  }
  // Calls use(the vector of integers), which then has room for such numbers.
  template <typename Use>
  void use_integers(const detail::integer_statistics& numbers, const Use& use) {
    const std::size_t bytes = bytes_for(numbers);
    if (bytes > visit([]<typename T>(const vector<T>&) { return sizeof(T); })) {
      statistics_.stop_counting();
      if (bytes == 2) widen<std::int16_t>();
      if (bytes == 4) widen<std::int32_t>();
      if (bytes == 8) widen<std::int64_t>();
    }
    std::visit(
        [&]<typename T>(vector<T>& all) {
          if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) use(all);
        },
        values_);
  }
  void append_integer(std::int64_t number) { append_integers(std::span<const std::int64_t>(&number, 1)); }
  void append_integers(std::span<const std::int64_t> numbers) {
    detail::integer_statistics of_them;
    of_them.add(numbers, {.lowest = no_integer + 1});
    use_integers(of_them, [&]<typename T>(vector<T>& to) {
      if constexpr (sizeof(T) == 1) {
        const std::vector<T> converted = converted_to<T>(numbers);
        to.append(converted);
        statistics_.count(std::span<const T>(converted));
      } else {
        append_as(to, numbers, narrowed<T>);
      }
    });
    statistics_.add(of_them);
  }
  void append_real(double number) { append_reals(std::span<const double>(&number, 1)); }
  void append_reals(std::span<const double> numbers) {
    const auto is_float = [](double number) {
      return std::isnan(number) || static_cast<double>(static_cast<float>(number)) == number;
    };
    if (std::holds_alternative<vector<float>>(values_) && !std::ranges::all_of(numbers, is_float)) widen<double>();
    if (auto* const narrow = std::get_if<vector<float>>(&values_)) {
      append_as(*narrow, numbers, [](double number) { return static_cast<float>(number); });
    } else {
      std::get<vector<double>>(values_).append(numbers);
    }
    statistics_.add(numbers);
  }
  template <typename T>
  [[nodiscard]] static std::vector<T> converted_to(std::span<const std::int64_t> numbers) {
    std::vector<T> converted(numbers.size());
    std::ranges::transform(numbers, converted.begin(), narrowed<T>);
    return converted;
  }
  template <typename T, typename Number, typename Convert>
  static void append_as(vector<T>& to, std::span<const Number> numbers, const Convert& convert) {
    if (numbers.size() == 1) return to.push_back(convert(numbers.front()));
    std::vector<T> converted(numbers.size());
    std::ranges::transform(numbers, converted.begin(), convert);
    to.append(converted);
  }
  template <typename Wide>
  void widen() {
    vector<Wide> wide(home());
    visit([&]<typename Narrow>(const vector<Narrow>& narrow) {
      std::vector<Narrow> some;
      for (std::size_t first = 0; first < narrow.size(); first += some.size()) {
        some.resize(std::min<std::size_t>(narrow.size() - first, 8192));
        narrow.read(first, std::span<Narrow>(some));
        append_as(wide, std::span<const Narrow>(some), [](Narrow number) {
          if constexpr (std::is_integral_v<Narrow>) {
            if (number == std::numeric_limits<Narrow>::lowest()) return std::numeric_limits<Wide>::lowest();
          }
          return static_cast<Wide>(number);
        });
      }
    });
    values_ = std::move(wide);
  }
  [[noreturn]] void throw_wrong_type() const {
    throw std::invalid_argument("a value of another type for a column of " + std::string(name_of(type_)));
  }
  void require_numbers(const char* what) const {
    if (type_ != column_type::text && type_ != column_type::time) return;
    throw std::invalid_argument("a column of " + std::string(name_of(type_)) + " has no " + what);
  }

  [[nodiscard]] std::int64_t integer_of(const cell& value) const {
    if (std::holds_alternative<std::monostate>(value)) return no_integer;
    const bool is_time = type_ == column_type::time;
    const auto* const time = std::get_if<timestamp>(&value);
    const auto* const number = std::get_if<std::int64_t>(&value);
    if (is_time ? time == nullptr : number == nullptr) throw_wrong_type();
    const std::int64_t found = is_time ? time->seconds : *number;
    if (found == no_integer) throw std::range_error("the least int64 stands for null in a column");
    return found;
  }
  [[nodiscard]] double real_of(const cell& value) const {
    if (std::holds_alternative<std::monostate>(value)) return no_real;
    if (const auto* const whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
    const auto* const number = std::get_if<double>(&value);
    if (number == nullptr) throw_wrong_type();
    return *number;
  }
  [[nodiscard]] std::uint8_t flag_of(const cell& value) const {
    if (std::holds_alternative<std::monostate>(value)) return no_flag;
    const auto* const flag = std::get_if<bool>(&value);
    if (flag == nullptr) throw_wrong_type();
    return *flag ? 1 : 0;
  }
  [[nodiscard]] std::int32_t code_to_append(const cell& value) {
    if (std::holds_alternative<std::monostate>(value)) return no_code;
    const auto* const text = std::get_if<std::string>(&value);
    if (text == nullptr) throw_wrong_type();
    const auto [at, is_new] = code_of_->try_emplace(*text, static_cast<std::int32_t>(dictionary_->size()));
    if (is_new) dictionary_->push_back(*text);
    return at->second;
  }

  void require_order() const {
    if (type_ == column_type::text) throw std::invalid_argument("a column of text has no order here; sort() has");
  }
  template <typename Pick>
  [[nodiscard]] cell extreme(const Pick& pick) const {
    require_order();
    return visit([&](const auto& all) -> cell {
      const auto found = known(all);
      if (found.count() == 0) return null;
      return cell_of(pick(found));
    });
  }

  [[nodiscard]] std::vector<cell> outermost(std::size_t count, detail::numbers_end from) const;
  [[nodiscard]] vector<std::size_t> rows_of_outermost(std::size_t count, detail::numbers_end from) const;

  // A quantile narrows an interval down, mostly in so many steps.
  static constexpr unsigned passes_of_quantile = 4;

  column_type type_;
  placement where_ = placement::automatic;
  storage values_;
  detail::column_statistics statistics_;
  std::unique_ptr<detail::question_place> place_ = std::make_unique<detail::question_place>();  // what questions showed
  std::shared_ptr<detail::frame_costs> costs_ = std::make_shared<detail::frame_costs>();
  // Shared by columns that are made of one another; a column that appends a new text adds it for all.
  std::shared_ptr<std::vector<std::string>> dictionary_ = std::make_shared<std::vector<std::string>>();
  std::shared_ptr<std::unordered_map<std::string, std::int32_t>> code_of_ =
      std::make_shared<std::unordered_map<std::string, std::int32_t>>();
};

}  // namespace far

#include "far/detail/column_questions.h"
