// A column of a far::dataframe: values of one type, or nulls, in far memory (docs/dataframe.md).
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

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

// A null is one of the numbers, so that questions about values are intervals, which far tiers answer: the least int64,
// NaN, 2 for a boolean, -1 for the code of a text. An int64 column takes 2 bytes a number, the least of which is null,
// until it gets one that needs more; then it takes 8. Texts are codes: indices into a dictionary in local memory, in
// the order in which they came. Move-only. Const operations may run at a time.
class column {
 public:
  using integers = vector<std::int64_t>;  // of times, their seconds
  using reals = vector<double>;
  using flags = vector<std::uint8_t>;
  using codes = vector<std::int32_t>;
  using shorts = vector<std::int16_t>;  // of int64, as long as all values lie between the limits of int16

 private:
  // In front of what uses them, because their types are deduced.
  using storage = std::variant<integers, reals, flags, codes, shorts>;
  // Calls answer(where) and learns from its costs. `passes`: how often the question goes over the numbers.
  template <typename T, typename Answer>
  auto place_question(const vector<T>& all, unsigned passes, const Answer& answer) const {
    const detail::question_meter meter(all.home().home());
    const std::size_t bytes = all.size() * sizeof(T);
    work where = where_ == placement::there ? work::there : work::here;
    if (where_ == placement::automatic) {
      const bool stays = bytes <= meter.budget_bytes() / 8;
      where = state_->place.choose(costs_->plain, bytes / detail::page_bytes_of_chunks, passes, stays);
    }
    auto found = answer(where);
    const detail::question_cost cost = meter.finish();
    costs_->plain.learn(where, cost);
    state_->place.learn(costs_->plain, where, cost);
    return found;
  }
  template <typename T>
  class here_with_type : public numbers_here<vector<T>> {
   public:
    explicit here_with_type(const vector<T>& all) : numbers_here<vector<T>>(all), all_(all) {}
    operator const vector<T>&() const { return all_; }

   private:
    const vector<T>& all_;
  };
  template <typename T>
  static here_with_type<T> asked_here(const vector<T>& all) {
    return here_with_type<T>(all);
  }

  // Asks about the numbers, or about them here. `question` is called with a vector or with numbers_here of it.
  template <typename Ask>
  auto ask(unsigned passes, const Ask& question) const {
    const auto with = [&](const auto& all) {
      return place_question(
          all, passes, [&](work where) { return where == work::there ? question(all) : question(asked_here(all)); });
    };
    return std::visit(with, values_);
  }
  // About the numbers of an interval.
  template <typename T>
  summary<T> summarize(const vector<T>& all, const interval<T>& within) const {
    return place_question(all, 1, [&](work where) { return all.summarize(within, where); });
  }
  // About all values: asked once, until the column changes.
  template <typename T>
  summary<T> summarize_values(const vector<T>& all) const {
    {
      const std::lock_guard lock(state_->mutex);
      if (const auto* const known = std::get_if<summary<T>>(&state_->of_values)) return *known;
    }
    const summary<T> found = summarize(all, valid(all));
    const std::lock_guard lock(state_->mutex);
    state_->of_values = found;
    return found;
  }

 public:
  // Calls `with` with the vector of numbers, which is of one of the types above.
  template <typename Visit>
  decltype(auto) visit(const Visit& with) const {
    return std::visit(with, values_);
  }

  column(const tag& in, column_type type) : type_(type), values_(make(in, type)) {}

  [[nodiscard]] column_type type() const { return type_; }
  [[nodiscard]] std::size_t size() const {
    return visit([](const auto& all) { return all.size(); });
  }
  [[nodiscard]] std::size_t null_count() const { return size() - count(); }
  void place(placement where) {
    where_ = where;
    forget();
  }
  // Learns what pages cost together with other columns of the same far heap.
  void share_costs(std::shared_ptr<detail::frame_costs> costs) { costs_ = std::move(costs); }

  // Throws std::invalid_argument when the cell is of another type, and std::range_error when it is an integer that
  // stands for null. NaN is null. An integer fits a float64 column.
  void append(const cell& value) {
    forget();
    switch (type_) {
      case column_type::int64:
      case column_type::time: return append_integer(integer_of(value));
      case column_type::float64: return std::get<reals>(values_).push_back(real_of(value));
      case column_type::boolean: return std::get<flags>(values_).push_back(flag_of(value));
      case column_type::text: return std::get<codes>(values_).push_back(code_to_append(value));
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
  [[nodiscard]] cell cell_of(std::int16_t number) const {
    return number == no_short ? cell(null) : cell(std::int64_t{number});
  }
  [[nodiscard]] cell cell_of(double number) const { return std::isnan(number) ? cell(null) : cell(number); }
  [[nodiscard]] cell cell_of(std::uint8_t number) const { return number > 1 ? cell(null) : cell(number == 1); }
  [[nodiscard]] cell cell_of(std::int32_t code) const {
    return code < 0 ? cell(null) : cell((*dictionary_)[static_cast<std::size_t>(code)]);
  }

  // Questions; nulls do not count. Answers are null or nothing when there is no value. sum() throws std::overflow_error
  // as far::summary does. Of booleans, true counts as 1; of texts there are only count() and counts(). Throw
  // std::invalid_argument when the type has no such answer.
  [[nodiscard]] std::size_t count() const {
    return visit([&](const auto& all) { return summarize_values(all).count(); });
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
      const auto found = summarize_values(all);
      if (found.count() == 0) return null;
      if constexpr (std::is_same_v<decltype(found.sum()), double>) return found.sum();
      return static_cast<std::int64_t>(found.sum());
    });
  }
  [[nodiscard]] std::optional<double> mean() const {
    require_numbers("mean");
    return visit([&](const auto& all) -> std::optional<double> {
      const auto found = summarize_values(all);
      if (found.count() == 0) return std::nullopt;
      return found.mean();
    });
  }
  [[nodiscard]] std::optional<double> quantile(double fraction) const {
    require_numbers("quantile");
    return visit([&](const auto& all) -> std::optional<double> {
      const auto found = summarize_values(all);
      return place_question(all, passes_of_quantile, [&](work where) {
        return where == work::there ? detail::quantile_of(all, found, fraction)
                                    : detail::quantile_of(far::here(all), found, fraction);
      });
    });
  }
  [[nodiscard]] std::optional<double> median() const { return quantile(0.5); }
  // How many values lie from `lowest` to `highest`, and in which rows; null as a bound: no bound.
  [[nodiscard]] std::size_t count_between(const cell& lowest, const cell& highest) const {
    return visit([&](const auto& all) { return summarize(all, interval_of(all, lowest, highest)).count(); });
  }
  [[nodiscard]] vector<std::size_t> rows_between(const cell& lowest, const cell& highest) const {
    return ask(1, [&](const auto& all) { return far::select(all, interval_of(all, lowest, highest)); });
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
    const interval<std::int32_t> exactly{code, code};
    return place_question(all, 1, [&](work where) {
      return where == work::there ? far::select(all, exactly) : far::select(far::here(all), exactly);
    });
  }
  // The rows whose text has this one in it; of a column of text. The dictionary is searched here, and the rows that
  // have what was found in it are asked for where they are. Takes a bit of local memory for each row.
  [[nodiscard]] vector<std::size_t> rows_containing(std::string_view text) const;
  // How often each value occurs, in ascending order of the values. For few different ones: they are in local memory.
  [[nodiscard]] std::vector<std::pair<cell, std::uint64_t>> counts() const;

  // Rows as a new column, in the order of their indices. Throws std::out_of_range.
  [[nodiscard]] column take(const vector<std::size_t>& rows) const;

  // An empty one of the same type, with the same dictionary.
  [[nodiscard]] column like(const tag& in) const {
    column empty(in, type_);
    if (std::holds_alternative<integers>(values_)) empty.values_ = integers(in);
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
    return visit([&](const auto& all) {
      const std::size_t bytes = all.size() * sizeof(typename std::remove_cvref_t<decltype(all)>::value_type);
      const bool stays = bytes <= all.home().home().statistics().budget_bytes / 8;
      return state_->place.choose(costs_->grouped, bytes / detail::page_bytes_of_chunks, passes, stays);
    });
  }
  template <typename Ask>
  void ask_about_groups(work where, const Ask& question) const {
    const detail::question_meter meter(visit([](const auto& all) -> const tag& { return all.home(); }).home());
    question();
    const detail::question_cost cost = meter.finish();
    costs_->grouped.learn(where, cost);
    state_->place.learn(costs_->grouped, where, cost);
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
  // columns of int64, or that of the column from which like() made this one.
  template <typename T>
  void append_numbers(std::span<const T> numbers) {
    forget();
    if constexpr (std::is_same_v<T, std::int64_t>) {
      if (std::holds_alternative<shorts>(values_) && append_short(numbers)) return;
    }
    std::get<vector<T>>(values_).append(numbers);
  }

  static constexpr std::int64_t no_integer = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int16_t no_short = std::numeric_limits<std::int16_t>::min();
  static constexpr double no_real = std::numeric_limits<double>::quiet_NaN();
  static constexpr std::uint8_t no_flag = 2;
  static constexpr std::int32_t no_code = -1;

  template <typename T>
  [[nodiscard]] static constexpr T null_number() {
    if constexpr (std::is_same_v<T, std::int64_t>) return no_integer;
    if constexpr (std::is_same_v<T, std::int16_t>) return no_short;
    if constexpr (std::is_same_v<T, double>) return no_real;
    if constexpr (std::is_same_v<T, std::uint8_t>) return no_flag;
    if constexpr (std::is_same_v<T, std::int32_t>) return no_code;
  }

  // All values.
  static interval<std::int64_t> valid(const integers&) { return {.lowest = no_integer + 1}; }
  static interval<std::int16_t> valid(const shorts&) { return {.lowest = no_short + 1}; }
  static interval<double> valid(const reals&) { return {}; }
  static interval<std::uint8_t> valid(const flags&) { return {0, 1}; }
  static interval<std::int32_t> valid(const codes&) { return {.lowest = 0}; }

 private:
  static storage make(const tag& in, column_type type) {
    switch (type) {
      case column_type::int64: return shorts(in);
      case column_type::time: return integers(in);
      case column_type::float64: return reals(in);
      case column_type::boolean: return flags(in);
      case column_type::text: break;
    }
    return codes(in);
  }

  // Nobody else may use the column meanwhile.
  void forget() { state_->of_values = std::monostate(); }

  [[nodiscard]] static bool is_short(std::int64_t number) {
    return number == no_integer || (number > no_short && number <= std::numeric_limits<std::int16_t>::max());
  }
  [[nodiscard]] static std::int16_t short_of(std::int64_t number) {
    return number == no_integer ? no_short : static_cast<std::int16_t>(number);
  }
  void append_integer(std::int64_t number) {
    if (auto* const narrow = std::get_if<shorts>(&values_)) {
      if (is_short(number)) return narrow->push_back(short_of(number));
      widen(*narrow);
    }
    std::get<integers>(values_).push_back(number);
  }
  // Appends numbers that are all short, and returns true, or makes room for longer ones.
  [[nodiscard]] bool append_short(std::span<const std::int64_t> numbers) {
    auto& narrow = std::get<shorts>(values_);
    if (!std::all_of(numbers.begin(), numbers.end(), is_short)) {
      widen(narrow);
      return false;
    }
    std::vector<std::int16_t> converted(numbers.size());
    std::transform(numbers.begin(), numbers.end(), converted.begin(), short_of);
    narrow.append(converted);
    return true;
  }
  void widen(const shorts& narrow) {
    integers wide(narrow.home());
    std::vector<std::int16_t> some;
    std::vector<std::int64_t> converted;
    for (std::size_t first = 0; first < narrow.size(); first += some.size()) {
      some.resize(std::min<std::size_t>(narrow.size() - first, 8192));
      narrow.read(first, std::span<std::int16_t>(some));
      converted.clear();
      for (const std::int16_t number : some) converted.push_back(number == no_short ? no_integer : number);
      wide.append(converted);
    }
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

  interval<std::int64_t> interval_of(const integers& all, const cell& lowest, const cell& highest) const {
    interval<std::int64_t> within = valid(all);
    if (!std::holds_alternative<std::monostate>(lowest)) within.lowest = integer_of(lowest);
    if (!std::holds_alternative<std::monostate>(highest)) within.highest = integer_of(highest);
    return within;
  }
  interval<std::int16_t> interval_of(const shorts& all, const cell& lowest, const cell& highest) const {
    interval<std::int16_t> within = valid(all);
    const std::int64_t least = std::holds_alternative<std::monostate>(lowest) ? within.lowest : integer_of(lowest);
    const std::int64_t most = std::holds_alternative<std::monostate>(highest) ? within.highest : integer_of(highest);
    if (least > within.highest || most < within.lowest) return {1, 0};
    within.lowest = static_cast<std::int16_t>(std::max<std::int64_t>(least, within.lowest));
    within.highest = static_cast<std::int16_t>(std::min<std::int64_t>(most, within.highest));
    return within;
  }
  interval<double> interval_of(const reals&, const cell& lowest, const cell& highest) const {
    interval<double> within;
    if (!std::holds_alternative<std::monostate>(lowest)) within.lowest = real_of(lowest);
    if (!std::holds_alternative<std::monostate>(highest)) within.highest = real_of(highest);
    return within;
  }
  interval<std::uint8_t> interval_of(const flags& all, const cell& lowest, const cell& highest) const {
    interval<std::uint8_t> within = valid(all);
    if (!std::holds_alternative<std::monostate>(lowest)) within.lowest = flag_of(lowest);
    if (!std::holds_alternative<std::monostate>(highest)) within.highest = flag_of(highest);
    return within;
  }
  interval<std::int32_t> interval_of(const codes& all, const cell& lowest, const cell& highest) const {
    const bool is_all =
        std::holds_alternative<std::monostate>(lowest) && std::holds_alternative<std::monostate>(highest);
    if (!is_all) throw std::invalid_argument("a column of text has no intervals");
    return valid(all);
  }
  template <typename Pick>
  [[nodiscard]] cell extreme(const Pick& pick) const {
    if (type_ == column_type::text) throw std::invalid_argument("a column of text has no order here; sort() has");
    return visit([&](const auto& all) -> cell {
      const auto found = summarize_values(all);
      if (found.count() == 0) return null;
      return cell_of(pick(found));
    });
  }

  // What questions have shown.
  struct state {
    std::mutex mutex;
    std::variant<std::monostate, summary<std::int64_t>, summary<double>, summary<std::uint8_t>, summary<std::int32_t>,
                 summary<std::int16_t>>
        of_values;
    detail::question_place place;
  };
  // A quantile narrows an interval down, mostly in so many steps.
  static constexpr unsigned passes_of_quantile = 4;

  column_type type_;
  placement where_ = placement::automatic;
  storage values_;
  std::unique_ptr<state> state_ = std::make_unique<state>();
  std::shared_ptr<detail::frame_costs> costs_ = std::make_shared<detail::frame_costs>();
  // Shared by columns that are made of one another; a column that appends a new text adds it for all.
  std::shared_ptr<std::vector<std::string>> dictionary_ = std::make_shared<std::vector<std::string>>();
  std::shared_ptr<std::unordered_map<std::string, std::int32_t>> code_of_ =
      std::make_shared<std::unordered_map<std::string, std::int32_t>>();
};

inline std::vector<std::pair<cell, std::uint64_t>> column::counts() const {
  std::vector<std::pair<cell, std::uint64_t>> found;
  const auto count = [&]<typename T>(const auto& all, const summary<T>& range) {
    if (range.count() == 0) return 0;
    const interval<T> within{range.min(), range.max()};
    if constexpr (std::is_integral_v<T>) {
      if (detail::key_of(range.max()) - detail::key_of(range.min()) < 1024) {
        const std::vector<std::uint64_t> tallied = tally(all, {range.min(), range.max()});
        for (std::size_t i = 0; i < tallied.size(); ++i) {
          const auto number = static_cast<T>(range.min() + static_cast<T>(i));
          if (tallied[i] > 0) found.emplace_back(cell_of(number), tallied[i]);
        }
        return 0;
      }
    }
    std::map<std::uint64_t, std::uint64_t> counted;
    std::vector<T> part(8192);
    for (std::size_t first = 0; first < all.size(); first += part.size()) {
      part.resize(std::min(part.size(), all.size() - first));
      all.read(first, std::span<T>(part));
      for (const T number : part) {
        if (number >= within.lowest && number <= within.highest) ++counted[detail::key_of(number)];
      }
    }
    for (const auto& [key, times] : counted) found.emplace_back(cell_of(detail::number_with_key<T>(key)), times);
    return 0;
  };
  visit([&](const auto& all) {
    const auto range = summarize_values(all);
    place_question(all, 1,
                   [&](work where) { return where == work::there ? count(all, range) : count(far::here(all), range); });
  });
  if (type_ == column_type::text) std::sort(found.begin(), found.end());
  return found;
}

inline vector<std::size_t> column::rows_containing(std::string_view text) const {
  if (type_ != column_type::text) throw_wrong_type();
  std::vector<bool> is_wanted(dictionary_->size());
  std::vector<interval<std::int32_t>> wanted;  // codes that follow one another
  for (std::int32_t code = 0; code < static_cast<std::int32_t>(dictionary_->size()); ++code) {
    if ((*dictionary_)[static_cast<std::size_t>(code)].find(text) == std::string::npos) continue;
    is_wanted[static_cast<std::size_t>(code)] = true;
    if (!wanted.empty() && wanted.back().highest + 1 == code) {
      wanted.back().highest = code;
    } else {
      wanted.push_back({code, code});
    }
  }
  const codes& all = std::get<codes>(values_);
  vector<std::size_t> rows(all.home());
  if (wanted.empty()) return rows;
  std::vector<bool> found(all.size());
  const auto ask_all = [&](const auto& asked) {
    for (const interval<std::int32_t>& one : wanted) {
      asked.visit_answers(detail::ask(detail::reduction_kind::marks, one),
                          [&](std::size_t first, std::size_t count, const std::byte* answer) {
                            detail::visit_marks(answer, count, [&](std::size_t i) { found[first + i] = true; });
                          });
    }
  };
  const auto read_all = [&] {
    std::vector<std::int32_t> some;
    for (std::size_t first = 0; first < all.size(); first += some.size()) {
      some.resize(std::min<std::size_t>(all.size() - first, 16'384));
      all.read(first, std::span<std::int32_t>(some));
      for (std::size_t i = 0; i < some.size(); ++i) {
        found[first + i] = some[i] >= 0 && is_wanted[static_cast<std::size_t>(some[i])];
      }
    }
  };
  place_question(all, static_cast<unsigned>(wanted.size()), [&](work where) {
    where == work::there ? ask_all(all) : read_all();
    return 0;
  });
  std::vector<std::size_t> some;
  for (std::size_t row = 0; row < found.size(); ++row) {
    if (found[row]) some.push_back(row);
    if (some.size() < 8192 && row + 1 < found.size()) continue;
    rows.append(some);
    some.clear();
  }
  return rows;
}

inline column column::take(const vector<std::size_t>& rows) const {
  column taken = like(rows.home());
  visit([&](const auto& all) {
    using T = typename std::remove_cvref_t<decltype(all)>::value_type;
    std::vector<std::size_t> indices;
    std::vector<T> some;
    for (std::size_t first = 0; first < rows.size(); first += indices.size()) {
      indices.resize(std::min<std::size_t>(rows.size() - first, 16'384));
      some.resize(indices.size());
      rows.read(first, std::span<std::size_t>(indices));
      all.gather(indices, std::span<T>(some));
      taken.append_numbers(std::span<const T>(some));
    }
  });
  return taken;
}

}  // namespace far
