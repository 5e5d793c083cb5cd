// The code of far::column (column.h), but for the questions whose answers are more than a number (column_questions.h).
#pragma once

#include <algorithm>
#include <cmath>
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

#include "far/column.h"
#include "far/detail/api.h"
#include "far/detail/column_asking.h"

namespace far {

template <typename T>
std::size_t column::counted(const interval<T>& within) const {
  std::size_t found = 0;
  for (int number = within.lowest; number <= within.highest; ++number) {
    found += statistics_.times(static_cast<T>(number));
  }
  return found;
}

template <typename T>
interval<T> column::interval_of(const vector<T>& all, const cell& lowest, const cell& highest) const {
  interval<T> within = valid(all);
  const bool has_lowest = !std::holds_alternative<std::monostate>(lowest);
  const bool has_highest = !std::holds_alternative<std::monostate>(highest);
  if (type_ == column_type::text) {
    if (has_lowest || has_highest) throw std::invalid_argument("a column of text has no intervals");
    return within;
  }
  const std::int64_t least = has_lowest ? bound_of(lowest) : within.lowest;
  const std::int64_t most = has_highest ? bound_of(highest) : within.highest;
  if (least > within.highest || most < within.lowest) return {1, 0};
  within.lowest = static_cast<T>(std::max<std::int64_t>(least, within.lowest));
  within.highest = static_cast<T>(std::min<std::int64_t>(most, within.highest));
  return within;
}

FAR_LIBRARY_CODE interval<double> column::interval_of(const vector<double>&, const cell& lowest,
                                                      const cell& highest) const {
  interval<double> within;
  if (!std::holds_alternative<std::monostate>(lowest)) within.lowest = real_of(lowest);
  if (!std::holds_alternative<std::monostate>(highest)) within.highest = real_of(highest);
  return within;
}

FAR_LIBRARY_CODE interval<float> column::interval_of(const vector<float>&, const cell& lowest,
                                                     const cell& highest) const {
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

FAR_LIBRARY_CODE interval<std::uint8_t> column::interval_of(const vector<std::uint8_t>& all, const cell& lowest,
                                                            const cell& highest) const {
  interval<std::uint8_t> within = valid(all);
  if (!std::holds_alternative<std::monostate>(lowest)) within.lowest = flag_of(lowest);
  if (!std::holds_alternative<std::monostate>(highest)) within.highest = flag_of(highest);
  return within;
}

FAR_LIBRARY_CODE column::column(const tag& in, column_type type)
    : type_(type), values_(make(detail::side_by_side(in), type)) {}
FAR_LIBRARY_CODE column::column(column&&) noexcept = default;
FAR_LIBRARY_CODE column& column::operator=(column&&) noexcept = default;
FAR_LIBRARY_CODE column::~column() = default;

FAR_LIBRARY_CODE std::size_t column::size() const {
  return visit([](const auto& all) { return all.size(); });
}

FAR_LIBRARY_CODE const tag& column::home() const {
  return visit([](const auto& all) -> const tag& { return all.home(); });
}

FAR_LIBRARY_CODE std::size_t column::bytes() const {
  return visit([]<typename T>(const vector<T>& all) { return all.size() * sizeof(T); });
}

FAR_LIBRARY_CODE void column::share_costs(std::shared_ptr<detail::frame_costs> costs) {
  costs_ = std::move(costs);
}
FAR_LIBRARY_CODE void column::append(const cell& value) {
  const any_number one = number_to_append(value);
  put(one);
  note(one);
}

FAR_LIBRARY_CODE column::any_number column::number_to_append(const cell& value) {
  switch (type_) {
    case column_type::int64:
    case column_type::time: return integer_of(value);
    case column_type::float64: return real_of(value);
    case column_type::boolean: return flag_of(value);
    case column_type::text: break;
  }
  return code_to_append(value);
}

FAR_LIBRARY_CODE void column::put(const any_number& one) {
  std::visit(
      [&]<typename T>(T value) {
        if constexpr (std::is_same_v<T, std::int64_t>) {
          detail::integer_statistics of_it;
          of_it.add(std::span<const T>(&value, 1), {.lowest = no_integer + 1});
          use_integers(of_it, [&]<typename Kept>(vector<Kept>& to) { to.push_back(narrowed<Kept>(value)); });
        } else if constexpr (std::is_same_v<T, double>) {
          widen_for({&value, 1});
          use_reals([&]<typename Kept>(vector<Kept>& to) { to.push_back(static_cast<Kept>(value)); });
        } else {
          statistics_.make_room<T>();
          std::get<vector<T>>(values_).push_back(value);
        }
      },
      one);
}

FAR_LIBRARY_CODE void column::note(const any_number& one) noexcept {
  std::visit(
      [&]<typename T>(T value) {
        const std::span<const T> numbers(&value, 1);
        if constexpr (std::is_same_v<T, std::int64_t>) {
          detail::integer_statistics of_it;
          of_it.add(numbers, {.lowest = no_integer + 1});
          statistics_.add(of_it);
          if (!std::holds_alternative<vector<std::int8_t>>(values_)) return;
          const auto kept = narrowed<std::int8_t>(value);
          statistics_.count(std::span<const std::int8_t>(&kept, 1));
        } else if constexpr (std::is_same_v<T, double>) {
          statistics_.add(numbers);
        } else {
          statistics_.add(numbers, valid(std::get<vector<T>>(values_)));
        }
      },
      one);
}

FAR_LIBRARY_CODE void column::take_back() noexcept {
  std::visit([](auto& all) { all.pop_back(); }, values_);
}

FAR_LIBRARY_CODE void column::check(const cell& value) const {
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

FAR_LIBRARY_CODE cell column::at(std::size_t row) const {
  return visit([&](const auto& all) { return cell_of(all.read(row)); });
}

FAR_LIBRARY_CODE cell column::cell_of(std::int64_t number) const {
  if (number == no_integer) return null;
  if (type_ == column_type::time) return timestamp{number};
  return number;
}

FAR_LIBRARY_CODE cell column::cell_of(std::int8_t number) const {
  return number == null_as<std::int8_t>() ? cell(null) : cell_of(std::int64_t{number});
}

FAR_LIBRARY_CODE cell column::cell_of(std::int16_t number) const {
  return number == null_as<std::int16_t>() ? cell(null) : cell_of(std::int64_t{number});
}

FAR_LIBRARY_CODE cell column::cell_of(float number) const {
  return cell_of(static_cast<double>(number));
}
FAR_LIBRARY_CODE cell column::cell_of(double number) const {
  return std::isnan(number) ? cell(null) : cell(number);
}
FAR_LIBRARY_CODE cell column::cell_of(std::uint8_t number) const {
  return number > 1 ? cell(null) : cell(number == 1);
}
FAR_LIBRARY_CODE cell column::cell_of(std::int32_t number) const {
  if (type_ == column_type::text) {
    return number < 0 ? cell(null) : cell(texts_.all()[static_cast<std::size_t>(number)]);
  }
  return number == null_as<std::int32_t>() ? cell(null) : cell_of(std::int64_t{number});
}

FAR_LIBRARY_CODE std::size_t column::count() const {
  return visit([&](const auto& all) { return known(all).count(); });
}

FAR_LIBRARY_CODE cell column::min() const {
  return extreme([](const auto& found) { return found.min(); });
}

FAR_LIBRARY_CODE cell column::max() const {
  return extreme([](const auto& found) { return found.max(); });
}

FAR_LIBRARY_CODE cell column::sum() const {
  require_numbers("sum");
  return visit([&](const auto& all) -> cell {
    const auto found = known(all);
    if (found.count() == 0) return null;
    if constexpr (std::is_same_v<decltype(found.sum()), double>) return found.sum();
    return static_cast<std::int64_t>(found.sum());
  });
}

FAR_LIBRARY_CODE std::optional<double> column::mean() const {
  require_numbers("mean");
  return visit([&](const auto& all) -> std::optional<double> {
    const auto found = known(all);
    if (found.count() == 0) return std::nullopt;
    return found.mean();
  });
}

FAR_LIBRARY_CODE std::optional<double> column::quantile(double fraction) const {
  require_numbers("quantile");
  return visit([&](const auto& all) -> std::optional<double> {
    const auto found = known(all);
    return place_question(all, detail::question_kind::ranks, passes_of_quantile, [&](const auto& where) {
      return detail::quantile_of(placed_numbers(all, where), found, fraction);
    });
  });
}

FAR_LIBRARY_CODE std::optional<double> column::median() const {
  require_numbers("median");
  return visit([&](const auto& all) -> std::optional<double> {
    const auto found = known(all);
    return place_question(all, detail::question_kind::ranks, passes_of_quantile,
                          [&](const auto& where) { return detail::median_of(placed_numbers(all, where), found); });
  });
}

FAR_LIBRARY_CODE std::size_t column::count_between(const cell& lowest, const cell& highest) const {
  return visit([&]<typename T>(const vector<T>& all) -> std::size_t {
    const interval<T> within = interval_of(all, lowest, highest);
    if constexpr (sizeof(T) == 1) return counted(within);
    return count_within(all, within);
  });
}

FAR_LIBRARY_CODE vector<std::size_t> column::rows_between(const cell& lowest, const cell& highest) const {
  return visit([&](const auto& all) { return select_rows(all, interval_of(all, lowest, highest)); });
}

FAR_LIBRARY_CODE vector<std::size_t> column::rows_equal(const cell& value) const {
  if (std::holds_alternative<std::monostate>(value)) {
    return visit([](const auto& all) { return vector<std::size_t>(all.home()); });
  }
  if (type_ != column_type::text) return rows_between(value, value);
  const codes& all = std::get<codes>(values_);
  const std::int32_t code = std::holds_alternative<std::string>(value) ? find_code(std::get<std::string>(value)) : -1;
  if (code < 0) return vector<std::size_t>(all.home());
  return select_rows(all, interval<std::int32_t>{code, code});
}

FAR_LIBRARY_CODE std::vector<cell> column::largest(std::size_t count) const {
  return outermost(count, detail::numbers_end::greatest);
}

FAR_LIBRARY_CODE std::vector<cell> column::smallest(std::size_t count) const {
  return outermost(count, detail::numbers_end::least);
}

FAR_LIBRARY_CODE vector<std::size_t> column::rows_of_largest(std::size_t count) const {
  return rows_of_outermost(count, detail::numbers_end::greatest);
}

FAR_LIBRARY_CODE vector<std::size_t> column::rows_of_smallest(std::size_t count) const {
  return rows_of_outermost(count, detail::numbers_end::least);
}

FAR_LIBRARY_CODE column column::like(const tag& in) const {
  column empty(in, type_);
  visit([&](const auto& all) { empty.values_ = std::remove_cvref_t<decltype(all)>(empty.home()); });
  empty.where_ = where_;
  empty.costs_ = costs_;
  empty.texts_ = texts_;
  return empty;
}

FAR_LIBRARY_CODE std::optional<work> column::place_groups(detail::question_kind kind, unsigned passes) const {
  if (where_ != placement::automatic) return where_ == placement::there ? work::there : work::here;
  if (bytes() > home().home().statistics().budget_bytes / 8) return std::nullopt;
  return place_->choose(costs_of_whole(kind), bytes() / detail::page_bytes_of_chunks, passes);
}

FAR_LIBRARY_CODE std::size_t column::pages_away(std::size_t first, std::size_t rows) const {
  return visit([&](const auto& all) { return detail::pages_away(all, first, rows); });
}

FAR_LIBRARY_CODE std::int32_t column::find_code(std::string_view text) const {
  return texts_.find(text);
}

template <typename T>
void column::append_numbers(std::span<const T> numbers) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    append_integers(numbers);
  } else if constexpr (std::is_same_v<T, double>) {
    append_reals(numbers);
  } else {
    auto* const all = std::get_if<vector<T>>(&values_);
    if (all == nullptr) {
      throw std::invalid_argument("far::column::append_numbers: the numbers of this column have another type");
    }
    if constexpr (std::is_same_v<T, std::int32_t>) {
      if (type_ == column_type::text) require_codes(numbers);
    }
    statistics_.make_room<T>();
    all->append(numbers);
    statistics_.add(numbers, valid(*all));
  }
}

FAR_LIBRARY_CODE void column::require_codes(std::span<const std::int32_t> some) const {
  const std::size_t texts = dictionary().size();
  for (const std::int32_t code : some) {
    if (code == no_code || (code >= 0 && static_cast<std::size_t>(code) < texts)) continue;
    throw std::out_of_range("far::column::append_numbers: the dictionary has " + std::to_string(texts) +
                            " texts, and none with the code " + std::to_string(code));
  }
}

FAR_LIBRARY_CODE column::storage column::make(const tag& in, column_type type) {
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
T column::narrowed(std::int64_t number) {
  return number == no_integer ? std::numeric_limits<T>::lowest() : static_cast<T>(number);
}

FAR_LIBRARY_CODE std::size_t column::bytes_for(const detail::integer_statistics& numbers) {
  const auto have_room_in = [&]<typename T>(T least) {
    return numbers.count == 0 || (numbers.least > least && numbers.greatest <= std::numeric_limits<T>::max());
  };
  if (have_room_in(std::numeric_limits<std::int8_t>::lowest())) return 1;
  if (have_room_in(std::numeric_limits<std::int16_t>::lowest())) return 2;
  return have_room_in(std::numeric_limits<std::int32_t>::lowest()) ? 4 : 8;
}

template <typename Use>
void column::use_integers(const detail::integer_statistics& numbers, const Use& use) {
  const std::size_t bytes = bytes_for(numbers);
  if (bytes > visit([]<typename T>(const vector<T>&) { return sizeof(T); })) {
    if (bytes == 2) widen<std::int16_t>();
    if (bytes == 4) widen<std::int32_t>();
    if (bytes == 8) widen<std::int64_t>();
    // Behind what throws: until then the numbers of a byte are counted.
    statistics_.stop_counting();
  }
  std::visit(
      [&]<typename T>(vector<T>& all) {
        if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) {
          statistics_.make_room<T>();
          use(all);
        }
      },
      values_);
}

FAR_LIBRARY_CODE void column::append_integers(std::span<const std::int64_t> numbers) {
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

FAR_LIBRARY_CODE void column::widen_for(std::span<const double> numbers) {
  const auto is_float = [](double number) {
    return std::isnan(number) || static_cast<double>(static_cast<float>(number)) == number;
  };
  if (std::holds_alternative<vector<float>>(values_) && !std::ranges::all_of(numbers, is_float)) widen<double>();
}

template <typename Use>
void column::use_reals(const Use& use) {
  statistics_.make_room<double>();
  if (auto* const narrow = std::get_if<vector<float>>(&values_)) return use(*narrow);
  use(std::get<vector<double>>(values_));
}

FAR_LIBRARY_CODE void column::append_reals(std::span<const double> numbers) {
  widen_for(numbers);
  use_reals([&]<typename T>(vector<T>& to) { append_as(to, numbers, [](double one) { return static_cast<T>(one); }); });
  statistics_.add(numbers);
}

template <typename T>
std::vector<T> column::converted_to(std::span<const std::int64_t> numbers) {
  std::vector<T> converted(numbers.size());
  std::ranges::transform(numbers, converted.begin(), narrowed<T>);
  return converted;
}

template <typename T, typename Number, typename Convert>
void column::append_as(vector<T>& to, std::span<const Number> numbers, const Convert& convert) {
  if (numbers.size() == 1) return to.push_back(convert(numbers.front()));
  std::vector<T> converted(numbers.size());
  std::ranges::transform(numbers, converted.begin(), convert);
  to.append(converted);
}

template <typename Wide>
void column::widen() {
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

FAR_LIBRARY_CODE void column::throw_wrong_type() const {
  throw std::invalid_argument("a value of another type for a column of " + std::string(name_of(type_)));
}

FAR_LIBRARY_CODE void column::require_numbers(const char* what) const {
  if (type_ != column_type::text && type_ != column_type::time) return;
  throw std::invalid_argument("a column of " + std::string(name_of(type_)) + " has no " + what);
}

FAR_LIBRARY_CODE std::int64_t column::integer_of(const cell& value) const {
  if (std::holds_alternative<std::monostate>(value)) return no_integer;
  const std::int64_t found = bound_of(value);
  if (found == no_integer) throw std::range_error("the least int64 stands for null in a column");
  return found;
}

FAR_LIBRARY_CODE std::int64_t column::bound_of(const cell& value) const {
  const bool is_time = type_ == column_type::time;
  const auto* const time = std::get_if<timestamp>(&value);
  const auto* const number = std::get_if<std::int64_t>(&value);
  if (is_time ? time == nullptr : number == nullptr) throw_wrong_type();
  return is_time ? time->seconds : *number;
}

FAR_LIBRARY_CODE double column::real_of(const cell& value) const {
  if (std::holds_alternative<std::monostate>(value)) return no_real;
  if (const auto* const whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  const auto* const number = std::get_if<double>(&value);
  if (number == nullptr) throw_wrong_type();
  return *number;
}

FAR_LIBRARY_CODE std::uint8_t column::flag_of(const cell& value) const {
  if (std::holds_alternative<std::monostate>(value)) return no_flag;
  const auto* const flag = std::get_if<bool>(&value);
  if (flag == nullptr) throw_wrong_type();
  return *flag ? 1 : 0;
}

FAR_LIBRARY_CODE std::int32_t column::code_to_append(const cell& value) {
  if (std::holds_alternative<std::monostate>(value)) return no_code;
  const auto* const text = std::get_if<std::string>(&value);
  if (text == nullptr) throw_wrong_type();
  return texts_.add(*text);
}

FAR_LIBRARY_CODE void column::require_order() const {
  if (type_ == column_type::text) throw std::invalid_argument("a column of text has no order here; sort() has");
}

template <typename Pick>
cell column::extreme(const Pick& pick) const {
  require_order();
  return visit([&](const auto& all) -> cell {
    const auto found = known(all);
    if (found.count() == 0) return null;
    return cell_of(pick(found));
  });
}

}  // namespace far
