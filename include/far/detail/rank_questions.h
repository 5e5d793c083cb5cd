// Numbers of a container by their rank, and other questions whose answers have no order: the far tier counts how many
// numbers lie in each of some buckets, or lists the different ones (docs/decisions/0118-medians-on-servers.md).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "far/detail/far_medians.h"
#include "far/detail/reduction.h"
#include "far/detail/unordered_questions.h"
#include "far/detail/visitor.h"
#include "far/summary.h"

namespace far::detail {

// Each function returns nothing, or false, if there are few pages, or less than half of the questions are answered.
template <typename Numbers>
class rank_questions {
 public:
  using T = typename Numbers::value_type;

  // About the numbers of the interval; `costs` as of unordered_questions. Requires: `all` lasts as long; the interval
  // is not empty.
  rank_questions(const Numbers& all, const interval<T>& within, part_costs* costs)
      : all_(all), within_(within), questions_(all, within, costs) {}

  // How many there are, the least and the greatest. The sum is none of them.
  [[nodiscard]] std::optional<summary<T>> bounds() {
    keyed_rows asked{.wants_least = true, .wants_greatest = true, .wants_counts = true, .buckets = 2};
    asked.buckets_of[0] = {.lowest = 0, .shift = 63};
    std::uint64_t count = 0;
    T least{};
    T greatest{};
    const auto add = [&](std::uint64_t numbers, T lower, T upper) {
      least = count == 0 || lower < least ? lower : least;
      greatest = count == 0 || upper > greatest ? upper : greatest;
      count += numbers;
    };
    const auto of_answer = [&](const unordered_answer<T>& one) {
      // The buckets have all keys. Bounds of a number in none of them would be anything.
      if (one.at_place(0) != 0 || one.at_place(1) + one.at_place(2) != one.count) return false;
      if (one.count > 0) add(one.count, one.least, one.greatest);
      return true;
    };
    const auto of_number = [&](T number) { add(1, number, number); };
    if (!ask(asked, of_answer, of_number)) return std::nullopt;
    return summary<T>({.count = count, .least = bits_of(least), .greatest = bits_of(greatest)});
  }

  // The numbers with these ranks among those that were found.
  [[nodiscard]] std::optional<std::pair<T, T>> find(const summary<T>& found, std::uint64_t first, std::uint64_t last) {
    if (!questions_.has_many()) return std::nullopt;
    far_medians<T> medians(found, most_buckets_of_rows);
    medians.look_for(0, first, last);
    take_sample(medians);
    std::uint64_t tried = std::numeric_limits<std::uint64_t>::max();
    while (count(medians)) {
      if (!medians.next()) return medians.found_in(0);
      const std::uint64_t few = std::min(questions_.questions() * most_left, far_medians<T>::most_listed) / 2;
      const std::uint64_t left = medians.left_to_list();
      // Many numbers may be few different ones: the first questions tell.
      if (left > few && left > tried / 16) continue;
      tried = left;
      if (list_rest(medians)) return medians.found_in(0);
    }
    return std::nullopt;
  }

  // Calls use(key, how often it occurs) for the different numbers, in any order, for one of them perhaps several times.
  // Where an answer has no room for them, the numbers are read.
  template <typename Use>
  [[nodiscard]] bool list_different(const Use& use) {
    return list(most_different, use);
  }
  // The same of at most `few` numbers.
  template <typename Use>
  [[nodiscard]] bool list_all(std::size_t few, const Use& use) {
    const std::size_t most = 12 + 4 * few / questions_.questions();
    return most <= most_different && list(static_cast<std::uint8_t>(most), use);
  }

  // How many numbers have each of the keys from the lowest on. Requires: there are at most 256.
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> tally() {
    const std::uint64_t lowest = key_of(within_.lowest);
    std::vector<std::uint64_t> counts(key_of(within_.highest) - lowest + 1);
    const bool is_one = counts.size() == 1;
    // What is below the buckets has the lowest key. One alone may be the greatest of all, and has a bucket.
    keyed_rows asked{.buckets = static_cast<std::uint8_t>(std::max<std::size_t>(counts.size() - 1, 1))};
    asked.buckets_of[0] = {.lowest = is_one ? lowest : lowest + 1, .shift = 0};
    const auto of_answer = [&](const unordered_answer<T>& one) {
      for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += one.at_place(is_one ? 1 : i);
      return true;
    };
    const auto of_number = [&](T number) { ++counts[key_of(number) - lowest]; };
    if (!ask(asked, of_answer, of_number)) return std::nullopt;
    return counts;
  }

 private:
  // Of what is left of a search in the end, for each question.
  static constexpr std::uint8_t most_left = 20;
  static constexpr std::uint8_t most_different = 80;

  template <typename OfAnswer, typename OfNumber>
  [[nodiscard]] bool ask(const keyed_rows& asked, const OfAnswer& of_answer, const OfNumber& of_number) {
    const auto of_numbers = [&](std::span<const T> some) {
      for (const T number : some) {
        if (number >= within_.lowest && number <= within_.highest) of_number(number);
      }
    };
    return questions_.has_many() && questions_.ask(asked, of_answer, visitor<std::span<const T>>(of_numbers));
  }

  // So that the first pass is about a part of the numbers. Pieces are what a far tier reads of a page.
  void take_sample(far_medians<T>& medians) const {
    constexpr std::size_t piece = 512 / sizeof(T);
    constexpr std::size_t most_pieces = 256;
    const std::size_t pieces = std::min(most_pieces, all_.size() * sizeof(T) / (64 * page_bytes_of_chunks));
    if (pieces < 4) return;
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < pieces; ++i) {
      const std::size_t first = all_.size() / pieces * i / piece * piece;
      for (std::size_t index = first; index < first + piece; ++index) indices.push_back(index);
    }
    std::vector<T> numbers(indices.size());
    all_.gather(indices, std::span<T>(numbers));
    const std::vector<std::uint32_t> groups(numbers.size());
    medians.sample(groups, numbers, within_, ~std::uint32_t{0});
    medians.end_sample();
  }

  [[nodiscard]] bool count(far_medians<T>& medians) {
    constexpr bool has_bounds = far_medians<T>::has_bounds;
    keyed_rows asked{.wants_least = has_bounds, .wants_greatest = has_bounds, .wants_counts = true};
    asked.buckets = most_buckets_of_rows;
    asked.buckets_of[0] = medians.buckets_of(0);
    const auto of_answer = [&](const unordered_answer<T>& one) {
      if (one.count > 0) medians.add(0, one.count, one.least, one.greatest, one.places);
      return true;
    };
    return ask_with_groups(asked, of_answer, medians);
  }
  // Returns whether all is found. Otherwise nothing has changed.
  [[nodiscard]] bool list_rest(far_medians<T>& medians) {
    medians.begin_list();
    keyed_rows asked{.wants_counts = true, .buckets = 1, .listed = most_left};
    asked.buckets_of[0] = medians.buckets_of(0);
    const auto of_answer = [&](const unordered_answer<T>& one) {
      if (one.is_too_long()) return false;
      medians.add_listed(0, one.count, one.at_place(0), one.different, one.numbers, one.times);
      return true;
    };
    const bool is_whole = ask_with_groups(asked, of_answer, medians) && !medians.is_list_too_long();
    is_whole ? medians.end_list() : medians.cancel_list();
    return is_whole;
  }
  template <typename OfAnswer>
  [[nodiscard]] bool ask_with_groups(const keyed_rows& asked, const OfAnswer& of_answer, far_medians<T>& medians) {
    const auto of_numbers = [&](std::span<const T> some) {
      groups_.resize(some.size());
      medians.add(groups_, some, within_, ~std::uint32_t{0});
    };
    return questions_.ask(asked, of_answer, visitor<std::span<const T>>(of_numbers));
  }

  // A list is about half of all keys at most.
  template <typename Use>
  [[nodiscard]] bool list(std::uint8_t most, const Use& use) {
    if (!(within_.lowest <= within_.highest)) return questions_.has_many();
    constexpr std::uint64_t half = std::uint64_t{1} << 63;
    const std::uint64_t lowest = key_of(within_.lowest);
    const std::uint64_t width = key_of(within_.highest) - lowest;
    if (width < half) return list_from({lowest, static_cast<std::uint8_t>(std::bit_width(width))}, most, use);
    return list_from({lowest, 63}, most, use) && list_from({lowest + half, 63}, most, use);
  }
  template <typename Use>
  [[nodiscard]] bool list_from(const group_buckets& where, std::uint8_t most, const Use& use) {
    keyed_rows asked{.wants_counts = true, .buckets = 1, .listed = most};
    asked.buckets_of[0] = where;
    const auto of_answer = [&](const unordered_answer<T>& one) {
      if (one.is_too_long()) return false;
      for (std::size_t i = 0; i < one.different; ++i) use(key_of(one.number_at(i)), one.times_at(i));
      return true;
    };
    const auto of_number = [&](T number) {
      const std::uint64_t key = key_of(number);
      if (key >= where.lowest && (key - where.lowest) >> where.shift == 0) use(key, std::uint64_t{1});
    };
    return ask(asked, of_answer, of_number);
  }

  const Numbers& all_;
  interval<T> within_;
  unordered_questions<Numbers> questions_;
  std::vector<std::uint32_t> groups_;  // all numbers are in the first
};

}  // namespace far::detail
