// What is known of the numbers of a column without a look at them: kept as it grows, while they are in the processor's
// caches (docs/decisions/0088-statistics.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "far/detail/chunk.h"
#include "far/detail/pointer.h"
#include "far/detail/reduction.h"
#include "far/summary.h"
#include "far/vector.h"

namespace far::detail {

__extension__ typedef __int128 wide_integer;

struct integer_statistics {
  std::uint64_t count = 0;
  wide_integer sum = 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t greatest = std::numeric_limits<std::int64_t>::min();

  // Those of the interval.
  template <typename T>
  void add(std::span<const T> numbers, const interval<T>& valid) {
    // So few that sums of 32 bits of each fit into 64.
    constexpr std::size_t most = 8192;
    for (; numbers.size() > most; numbers = numbers.subspan(most)) add_some(numbers.first(most), valid);
    add_some(numbers, valid);
  }
  void add(const integer_statistics& more) {
    count += more.count;
    sum += more.sum;
    least = std::min(least, more.least);
    greatest = std::max(greatest, more.greatest);
  }

  // They fit into T.
  template <typename T>
  [[nodiscard]] summary<T> as() const {
    if (count == 0) return summary<T>(reduced_numbers{});
    return summary<T>({.count = count,
                       .sum = static_cast<std::uint64_t>(sum),
                       .upper_sum = static_cast<std::uint64_t>(sum >> 64),
                       .least = bits_of(static_cast<T>(least)),
                       .greatest = bits_of(static_cast<T>(greatest))});
  }

 private:
  template <typename T>
  void add_some(std::span<const T> numbers, const interval<T>& valid) {
    std::int64_t values = 0;
    std::int64_t low = 0;
    std::int64_t high = 0;
    std::int64_t lowest = least;
    std::int64_t highest = greatest;
    for (const T number : numbers) {
      const bool is_value = number >= valid.lowest && number <= valid.highest;
      const std::int64_t value = is_value ? std::int64_t{number} : 0;
      values += is_value ? 1 : 0;
      low += value & 0xffff'ffff;
      high += value >> 32;
      lowest = std::min(lowest, is_value ? value : std::numeric_limits<std::int64_t>::max());
      highest = std::max(highest, is_value ? value : std::numeric_limits<std::int64_t>::min());
    }
    count += static_cast<std::uint64_t>(values);
    sum += wide_integer{high} * (std::int64_t{1} << 32) + low;
    least = lowest;
    greatest = highest;
  }
};

// Added up in the order in which vector<double>::summarize() does it, page by page, so that sums are the same, bit for
// bit.
class real_statistics {
 public:
  void make_room() { waiting_.reserve(numbers_of_page); }
  // Requires: make_room().
  void add(std::span<const double> numbers) {
    while (!numbers.empty()) {
      if (waiting_.empty() && numbers.size() >= numbers_of_page) {
        add_page(reduce(numbers.first(numbers_of_page)));
        numbers = numbers.subspan(numbers_of_page);
        continue;
      }
      const std::size_t now = std::min(numbers.size(), numbers_of_page - waiting_.size());
      waiting_.insert(waiting_.end(), numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(now));
      numbers = numbers.subspan(now);
      if (waiting_.size() < numbers_of_page) continue;
      add_page(reduce(waiting_));
      waiting_.clear();
    }
  }

  // They fit into T.
  template <typename T>
  [[nodiscard]] summary<T> all() const {
    reduced_numbers last = of_piece_;
    add_reduced(values, reduce(waiting_), last);
    reduced_numbers found = of_pieces_;
    add_reduced(values, last, found);
    found.least = bits_of(static_cast<T>(number_of<double>(found.least)));
    found.greatest = bits_of(static_cast<T>(number_of<double>(found.greatest)));
    return summary<T>(found);
  }

 private:
  static constexpr std::size_t numbers_of_page = page_bytes_of_chunks / sizeof(double);
  static constexpr std::size_t pages_of_piece = elements_per_object<double> / numbers_of_page;
  static inline const reduction values{number_type::float64, bits_of(interval<double>{}.lowest),
                                       bits_of(interval<double>{}.highest)};

  [[nodiscard]] static reduced_numbers reduce(std::span<const double> numbers) {
    return reduce_bytes(reinterpret_cast<const std::byte*>(numbers.data()), numbers.size_bytes(), values);
  }
  void add_page(const reduced_numbers& page) {
    add_reduced(values, page, of_piece_);
    if (++pages_ % pages_of_piece != 0) return;
    add_reduced(values, of_piece_, of_pieces_);
    of_piece_ = {};
  }

  reduced_numbers of_pieces_;  // those that are complete
  reduced_numbers of_piece_;   // the last one
  std::size_t pages_ = 0;
  std::vector<double> waiting_;  // of the last page
};

class column_statistics {
 public:
  // From now on nothing is allocated for numbers as the column keeps them, until stop_counting(): what is known of them
  // is added when they have been appended, and must not throw then.
  template <typename T>
  void make_room() {
    if constexpr (std::is_floating_point_v<T>) reals_.make_room();
    if constexpr (sizeof(T) == 1) times_.resize(256);
  }
  // Of numbers as the column keeps them.
  template <typename T>
  void add(std::span<const T> numbers, const interval<T>& valid) {
    if constexpr (std::is_same_v<T, double>) {
      reals_.add(numbers);
    } else if constexpr (std::is_same_v<T, float>) {
      std::array<double, 512> wide;
      for (std::span<const T> rest = numbers; !rest.empty();) {
        const std::span<const T> some = rest.first(std::min(rest.size(), wide.size()));
        std::copy(some.begin(), some.end(), wide.begin());
        reals_.add(std::span<const double>(wide).first(some.size()));
        rest = rest.subspan(some.size());
      }
    } else {
      integer_statistics more;
      more.add(numbers, valid);
      add(more);
    }
    if constexpr (sizeof(T) == 1) count(numbers);
  }
  void add(const integer_statistics& more) { integers_.add(more); }
  void add(std::span<const double> numbers) { reals_.add(numbers); }
  // Numbers of a byte are also counted one by one, nulls among them. Requires: make_room().
  template <typename T>
    requires(sizeof(T) == 1)
  void count(std::span<const T> numbers) {
    if (numbers.size() < 256) {
      for (const T number : numbers) ++times_[static_cast<std::uint8_t>(number)];
      return;
    }
    // Two of each, because equal numbers in a row would wait for each other.
    std::array<std::uint32_t, 512> times{};
    for (; numbers.size() > most_counted; numbers = numbers.subspan(most_counted)) count(numbers.first(most_counted));
    for (std::size_t i = 0; i < numbers.size(); ++i) ++times[i % 2 * 256 + static_cast<std::uint8_t>(numbers[i])];
    for (std::size_t i = 0; i < 256; ++i) times_[i] += times[i] + times[256 + i];
  }
  // The column takes more than a byte for each number from now on.
  void stop_counting() { times_ = {}; }

  // As vector<T>::summarize() of all values; of float as of the same numbers as double.
  template <typename T>
  [[nodiscard]] summary<T> all() const {
    if constexpr (std::is_floating_point_v<T>) {
      return reals_.all<T>();
    } else {
      return integers_.as<T>();
    }
  }
  // How often a number occurs. Requires: it takes a byte.
  template <typename T>
  [[nodiscard]] std::uint64_t times(T number) const {
    return times_.empty() ? 0 : times_[static_cast<std::uint8_t>(number)];
  }

 private:
  static constexpr std::size_t most_counted = std::size_t{1} << 30;

  integer_statistics integers_;
  real_statistics reals_;
  std::vector<std::uint64_t> times_;  // of each number, by its bits
};

}  // namespace far::detail
