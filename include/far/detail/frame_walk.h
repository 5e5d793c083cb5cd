// What the types of columns have in common with C++, and walks over columns side by side.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "far/column.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/task.h"
#include "far/vector.h"

namespace far::detail {

template <typename T>
inline constexpr bool is_cell_number =
    std::is_same_v<T, std::int64_t> || std::is_same_v<T, double> || std::is_same_v<T, bool>;

template <typename T>
  requires is_cell_number<T>
[[nodiscard]] constexpr column_type column_type_of() {
  if constexpr (std::is_same_v<T, std::int64_t>) return column_type::int64;
  if constexpr (std::is_same_v<T, double>) return column_type::float64;
  return column_type::boolean;
}
template <typename T>
using number_of_column = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
template <typename T>
[[nodiscard]] constexpr number_of_column<T> null_of() {
  if constexpr (std::is_same_v<T, double>) return column::no_real;
  if constexpr (std::is_same_v<T, bool>) return column::no_flag;
  if constexpr (std::is_same_v<T, std::int64_t>) return column::no_integer;
}
template <typename T>
[[nodiscard]] bool is_null(number_of_column<T> number) {
  if constexpr (std::is_same_v<T, double>) return std::isnan(number);
  if constexpr (!std::is_same_v<T, double>) return number == null_of<T>();
}

// A walk over columns, side by side. Columns that do not fit in local memory anyhow do not push others out.
class walk {
 public:
  walk(const tag& in, std::size_t bytes) : passes_(bytes > in.home().statistics().budget_bytes / 4 * 3) {}

  [[nodiscard]] bool passes() const { return passes_; }

  // The numbers from `first` on, up to the end of their chunk, and at most `count`. Throws std::logic_error when there
  // is none: who walks until it has all would do so for ever.
  template <typename T>
  [[nodiscard]] std::span<const T> chunk(const vector<T>& of, const scope& here, std::size_t first,
                                         std::size_t count) const {
    if (first >= of.size() && count > 0) throw std::logic_error("a column has fewer rows than its data frame");
    return passes_ ? of.chunk(here, first, count, non_temporal) : of.chunk(here, first, count);
  }

 private:
  bool passes_;
};

// The numbers of a walk that passes by, or of another one. In the first, fibers copy numbers into local memory ahead of
// it: they take no frames, and the thread that walks has not to bring them in, nor others out.
template <typename T>
class walked_numbers {
 public:
  // Null: there are none.
  explicit walked_numbers(const vector<T>* of) : of_(of) {}

  [[nodiscard]] explicit operator bool() const { return of_ != nullptr; }

  // Waits for the same part as chunk(), which is then at hand: a scope in which a thread waits keeps pages here. Throws
  // what reading it threw.
  void await(const walk& how, std::size_t first, std::size_t count) {
    if (of_ == nullptr || !how.passes()) return;
    if (parts_.empty() || parts_[next_].first != first) begin(first, count);
    part& mine = parts_[next_];
    if (mine.copying.joinable()) {
      mine.copying.join();
    } else {
      copy(*of_, first, mine.numbers);
    }
  }
  // `count` numbers from `first` on, until the next call. Requires: they lie in one chunk; a walk goes from one part to
  // the next one of the same size, and await() of this one was the last call.
  [[nodiscard]] std::span<const T> chunk(const walk& how, const scope& here, std::size_t first, std::size_t count) {
    if (!how.passes()) return how.chunk(*of_, here, first, count);
    part& mine = parts_[next_];
    next_ = (next_ + 1) % parts_.size();
    // The one before this has been used.
    const std::size_t used = (next_ + parts_.size() - 2) % parts_.size();
    if (first != first_) start(parts_[used], first + (parts_.size() - 1) * count, count);
    return mine.numbers;
  }

 private:
  static constexpr std::size_t most_parts = 8;

  struct part {
    std::size_t first = 0;
    std::vector<T> numbers;
    // None when there is no memory for its stack: then await() copies. Last, so that it has ended before they are gone.
    task<void> copying;
  };

  void begin(std::size_t first, std::size_t count) {
    parts_.clear();
    parts_.resize(most_parts);
    next_ = 0;
    first_ = first;
    for (std::size_t i = 0; i < most_parts; ++i) start(parts_[i], first + i * count, count);
  }
  void start(part& to, std::size_t first, std::size_t count) {
    to.first = first;
    if (first >= of_->size()) return;
    to.numbers.resize(std::min(count, of_->size() - first));
    to.copying = try_spawn(*of_, [&to, of = of_] { copy(*of, to.first, to.numbers); });
  }
  // None: there is no memory for its stack.
  template <typename Body>
  [[nodiscard]] static task<void> try_spawn(const vector<T>& of, const Body& body) {
    try {
      return of.home().home().spawn(body);
    } catch (const std::system_error&) {
      return {};
    }
  }
  // Its pages side by side: a fiber waits for one at a time.
  static void copy(const vector<T>& of, std::size_t first, std::span<T> numbers) {
    constexpr std::size_t on_a_page = page_bytes_of_chunks / sizeof(T);
    std::vector<task<void>> others;
    for (std::size_t at = on_a_page; at < numbers.size(); at += on_a_page) {
      const std::span<T> page = numbers.subspan(at, std::min(on_a_page, numbers.size() - at));
      const auto read = [&of, page, from = first + at] { of.read(from, page, non_temporal); };
      if (task<void> one = try_spawn(of, read); one.joinable()) {
        others.push_back(std::move(one));
      } else {
        read();
      }
    }
    of.read(first, numbers.first(std::min(on_a_page, numbers.size())), non_temporal);
    for (task<void>& one : others) one.join();
  }

  const vector<T>* of_;
  std::size_t first_ = 0;
  std::size_t next_ = 0;
  std::vector<part> parts_;
};

// Numbers of a column as T, which derive() is given; the column keeps them so, or in fewer bytes.
template <typename T>
class number_reader {
 public:
  using number = number_of_column<T>;

  // Throws std::invalid_argument when the column, which has this name, has others.
  number_reader(const column& of, std::string_view name) : numbers_(of.numbers<number>()), narrow_(narrow_of(of)) {
    const bool fits =
        of.type() == column_type_of<T>() || (std::is_same_v<T, std::int64_t> && of.type() == column_type::time);
    if (!fits) {
      throw std::invalid_argument("the column '" + std::string(name) + "' has the type " +
                                  std::string(name_of(of.type())) + " and is used as another");
    }
  }

  // See walked_numbers.
  void await(const walk& how, std::size_t first, std::size_t count) {
    numbers_.await(how, first, count);
    std::apply([&](auto&... one) { (..., one.await(how, first, count)); }, narrow_);
  }
  // Until the next call. Requires: they lie in one chunk.
  [[nodiscard]] std::span<const number> chunk(const walk& how, const scope& here, std::size_t first,
                                              std::size_t count) {
    if (numbers_) return numbers_.chunk(how, here, first, count);
    std::apply([&](auto&... one) { (..., widen(how, one, here, first, count)); }, narrow_);
    return widened_;
  }

 private:
  using narrow_numbers = std::conditional_t<
      std::is_same_v<T, std::int64_t>,
      std::tuple<walked_numbers<std::int8_t>, walked_numbers<std::int16_t>, walked_numbers<std::int32_t>>,
      std::conditional_t<std::is_same_v<T, double>, std::tuple<walked_numbers<float>>, std::tuple<>>>;

  [[nodiscard]] static narrow_numbers narrow_of(const column& of) {
    return [&]<typename... Narrow>(std::type_identity<std::tuple<walked_numbers<Narrow>...>>) {
      return narrow_numbers(walked_numbers<Narrow>(of.numbers<Narrow>())...);
    }(std::type_identity<narrow_numbers>());
  }

  template <typename Narrow>
  void widen(const walk& how, walked_numbers<Narrow>& from, const scope& here, std::size_t first, std::size_t count) {
    if (!from) return;
    const std::span<const Narrow> narrow = from.chunk(how, here, first, count);
    widened_.resize(narrow.size());
    std::transform(narrow.begin(), narrow.end(), widened_.begin(), [](Narrow one) {
      if constexpr (std::is_integral_v<Narrow>) {
        if (one == std::numeric_limits<Narrow>::lowest()) return null_of<T>();
      }
      return static_cast<number>(one);
    });
  }

  walked_numbers<number> numbers_;
  narrow_numbers narrow_;  // at most one of them and of `numbers_` is not null
  std::vector<number> widened_;
};

// A column that derive() makes of values, some of which wait in local memory.
template <typename T>
class derived_column {
 public:
  explicit derived_column(const tag& in) : values_(in, column_type_of<T>()) {}

  void add(T value) { waiting_.push_back(static_cast<number_of_column<T>>(value)); }
  void add_null() { waiting_.push_back(null_of<T>()); }
  void store() {
    values_.append_numbers(std::span<const number_of_column<T>>(waiting_));
    waiting_.clear();
  }
  [[nodiscard]] column take() && { return std::move(values_); }

 private:
  column values_;
  std::vector<number_of_column<T>> waiting_;
};

}  // namespace far::detail
