// Questions about the numbers of a far::vector or a far::array whose answers are small beside them. Remote pages are
// not fetched for it: the memory server that holds them finds the answer (AIFM, sections 4.3 and 8.1.2; Atlas,
// section 5.4).
//
//     far::vector<double> distances(farheap);
//     const far::vector<std::size_t> trips = far::select(distances, {.lowest = 100});
//     const std::vector<double> farthest = far::largest(distances, 10);
//     if (const auto middle = far::median(distances)) std::printf("%g km\n", *middle);
//
// All of them give the same results, bit for bit, wherever the numbers are. NaN is in no interval, so it is left out,
// and -0 counts as 0. Nobody may write to the numbers meanwhile. They run on several fibers; call them from a fiber or
// an OS thread. docs/containers.md says what each costs.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "far/detail/answers.h"
#include "far/detail/between.h"
#include "far/detail/question_parts.h"
#include "far/detail/rank_questions.h"
#include "far/detail/reduction.h"
#include "far/detail/visitor.h"
#include "far/summary.h"
#include "far/vector.h"

namespace far {

// A far::vector or far::array of numbers, or what here() returns.
template <typename Container>
concept far_numbers =
    detail::reducible<typename Container::value_type> && requires(const Container& all) { all.summarize(); };

// The same numbers, about which questions are answered where they are, or here: then their pages are fetched.
template <far_numbers Numbers>
class placed_numbers {
 public:
  using value_type = typename Numbers::value_type;

  placed_numbers(const Numbers& all, const detail::question_parts& where) : all_(all), where_(where) {}
  [[nodiscard]] const Numbers& numbers() const { return all_; }
  [[nodiscard]] const detail::question_parts& where() const { return where_; }
  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] const tag& home() const { return all_.home(); }
  void read(std::size_t first, std::span<value_type> into) const { all_.read(first, into); }
  void gather(std::span<const std::size_t> indices, std::span<value_type> into) const { all_.gather(indices, into); }
  [[nodiscard]] summary<value_type> summarize(const interval<value_type>& within = {}) const {
    return all_.summarize(within, where_.where);
  }
  template <typename Visit>
  void visit_answers(const detail::reduction& how, Visit visit) const {
    visit_answers(0, all_.size(), how, std::move(visit));
  }
  template <typename Visit>
  void visit_answers(std::size_t first, std::size_t count, const detail::reduction& how, Visit visit) const {
    where_.for_parts(all_, first, count, [&](std::size_t part, std::size_t numbers, work where) {
      all_.visit_answers(part, numbers, how, visit, where);
    });
  }

 private:
  const Numbers& all_;
  detail::question_parts where_;
};

// `far::median(far::here(numbers))`: for numbers that fit in local memory and are asked about again. Requires: they
// last as long as what is returned.
template <far_numbers Numbers>
[[nodiscard]] placed_numbers<Numbers> here(const Numbers& all) {
  return {all, {work::here}};
}

namespace detail {

template <reducible T>
[[nodiscard]] reduction ask(reduction_kind kind, const interval<T>& within, unsigned shift = 0) {
  return {number_type_of<T>(), bits_of(within.lowest), bits_of(within.highest), kind, static_cast<std::uint8_t>(shift)};
}

// Adds up the buckets of all pages. Requires: the interval is not empty, and has at most 256 buckets.
template <far_numbers Numbers>
[[nodiscard]] std::vector<std::uint64_t> count_buckets(const Numbers& all,
                                                       const interval<typename Numbers::value_type>& within,
                                                       unsigned shift) {
  const std::size_t buckets = ((key_of(within.highest) - key_of(within.lowest)) >> shift) + 1;
  std::vector<std::uint64_t> counts(buckets);
  all.visit_answers(ask(reduction_kind::counts, within, shift), [&](std::size_t, std::size_t, const std::byte* answer) {
    for (std::size_t i = 0; i < buckets; ++i) {
      std::uint16_t one = 0;
      std::memcpy(&one, answer + i * sizeof one, sizeof one);
      counts[i] += one;
    }
  });
  return counts;
}

// Calls take(keys of some) for all numbers of the interval, or for different ones of each page. Pages that have more
// than an answer has room for are fetched. Of keys there is one type only, which sorts like the numbers.
template <far_numbers Numbers>
void list_keys(const Numbers& all, reduction_kind kind, const interval<typename Numbers::value_type>& within,
               const visitor<std::span<const std::uint64_t>>& take) {
  using T = typename Numbers::value_type;
  std::vector<T> fetched;
  std::vector<std::uint64_t> keys;
  all.visit_answers(ask(kind, within), [&](std::size_t first, std::size_t count, const std::byte* answer) {
    const listed_numbers<T> found(answer);
    keys.clear();
    for (const T number : found.numbers) keys.push_back(key_of(number));
    if (found.count > found.most) {
      fetched.resize(count);
      all.read(first, std::span<T>(fetched));
      for (const T number : fetched) {
        if (number >= within.lowest && number <= within.highest) keys.push_back(key_of(number));
      }
    }
    take(keys);
  });
}
template <far_numbers Numbers>
[[nodiscard]] std::vector<std::uint64_t> keys_of(const Numbers& all,
                                                 const interval<typename Numbers::value_type>& within) {
  std::vector<std::uint64_t> keys;
  list_keys(all, reduction_kind::values, within, visitor<std::span<const std::uint64_t>>([&](auto some) {
              keys.insert(keys.end(), some.begin(), some.end());
            }));
  return keys;
}

// The greatest number whose key is not above this one. There is a key between those of the numbers beside 0 that has
// only -0, which compares as 0.
template <reducible T>
[[nodiscard]] T number_up_to_key(std::uint64_t key) {
  const T number = number_with_key<T>(key);
  return key_of(number) > key ? number_with_key<T>(key - 1) : number;
}

// An interval with fewer numbers than there are in the whole, and what is known of it.
template <reducible T>
struct narrowed {
  interval<T> within;
  std::uint64_t count = 0;
  std::uint64_t below = 0;  // numbers of the whole interval that are less than those of this one
};

// Buckets of a pass: more make answers longer, and fewer make more passes.
inline constexpr unsigned bucket_bits = 6;

// Narrows an interval down to the bucket that has the number of this rank.
template <far_numbers Numbers>
void narrow(const Numbers& all, std::uint64_t rank, narrowed<typename Numbers::value_type>& in) {
  using T = typename Numbers::value_type;
  const std::uint64_t first = key_of(in.within.lowest);
  const std::uint64_t last = key_of(in.within.highest);
  const auto bits = static_cast<unsigned>(std::bit_width(last - first));
  const unsigned shift = bits > bucket_bits ? bits - bucket_bits : 0;
  const std::vector<std::uint64_t> counts = count_buckets(all, in.within, shift);
  std::size_t bucket = 0;
  while (bucket + 1 < counts.size() && in.below + counts[bucket] <= rank) in.below += counts[bucket++];
  const std::uint64_t from = first + (std::uint64_t{bucket} << shift);
  const std::uint64_t width = std::uint64_t{1} << shift;
  in.within = {number_with_key<T>(from), number_up_to_key<T>(from + std::min(width - 1, last - from))};
  in.count = counts[bucket];
}

// use(questions about many pages at once), or what there is without them: where the numbers are to be here, or have no
// pages of their own. `costs`: if not null, they choose for some pages at a time.
template <typename Answer, far_numbers Numbers, typename Use>
[[nodiscard]] Answer ask_there(const Numbers& all, const interval<typename Numbers::value_type>& within, const Use& use,
                               [[maybe_unused]] part_costs* costs = nullptr) {
  if constexpr (requires { all.where(); }) {
    return all.where().where == work::here ? Answer{}
                                           : ask_there<Answer>(all.numbers(), within, use, all.where().costs);
  } else if constexpr (has_pages<Numbers>) {
    rank_questions<Numbers> questions(all, within, costs);
    return use(questions);
  } else {
    return Answer{};
  }
}

// A summary without the sum.
template <far_numbers Numbers>
[[nodiscard]] summary<typename Numbers::value_type> bounds_of(const Numbers& all,
                                                              const interval<typename Numbers::value_type>& within) {
  using answer = std::optional<summary<typename Numbers::value_type>>;
  const auto there = ask_there<answer>(all, within, [](auto& questions) { return questions.bounds(); });
  return there ? *there : all.summarize(within);
}

// The numbers with the ranks `first` and `last` among those that were summarized, 0 being the least. Requires: first <=
// last, and below found.count().
template <far_numbers Numbers>
[[nodiscard]] std::pair<typename Numbers::value_type, typename Numbers::value_type> find_ranks(
    const Numbers& all, const summary<typename Numbers::value_type>& found, std::uint64_t first, std::uint64_t last) {
  using T = typename Numbers::value_type;
  using answer = std::optional<std::pair<T, T>>;
  const auto find = [&](auto& questions) { return questions.find(found, first, last); };
  if (const auto there = ask_there<answer>(all, interval<T>{found.min(), found.max()}, find)) return *there;
  narrowed<T> in{{found.min(), found.max()}, found.count(), 0};
  // So few that a page has room for its part in an answer, mostly.
  const std::uint64_t few = std::max<std::uint64_t>(all.size() * sizeof(T) / page_bytes_of_chunks, 64);
  while (in.count > few && key_of(in.within.lowest) != key_of(in.within.highest)) narrow(all, first, in);
  if (first != last && last >= in.below + in.count) {
    // They lie in different buckets; the second is the least of what follows.
    return {find_ranks(all, found, first, first).first, find_ranks(all, found, last, last).first};
  }
  const T least = number_with_key<T>(key_of(in.within.lowest));  // zero is positive
  if (key_of(in.within.lowest) == key_of(in.within.highest)) return {least, least};
  std::vector<std::uint64_t> listed = keys_of(all, in.within);
  // Writers that should not be there change the result, and make fewer numbers of those that were counted.
  if (listed.empty()) return {least, least};
  const auto at = [&](std::uint64_t rank) {
    const std::uint64_t index = std::min<std::uint64_t>(rank - in.below, listed.size() - 1);
    const auto place = listed.begin() + static_cast<std::ptrdiff_t>(index);
    std::nth_element(listed.begin(), place, listed.end());
    return number_with_key<T>(*place);
  };
  const T one = at(first);
  return {one, at(last)};
}

}  // namespace detail

// The indices of all numbers of the interval, in ascending order, as a vector in the same far heap. Throws as
// far::vector::push_back.
template <far_numbers Numbers>
[[nodiscard]] vector<std::size_t> select(const Numbers& all, const interval<typename Numbers::value_type>& within) {
  vector<std::size_t> found(all.home());
  std::vector<std::size_t> of_page;
  all.visit_answers(detail::ask(detail::reduction_kind::marks, within),
                    [&](std::size_t first, std::size_t count, const std::byte* answer) {
                      of_page.clear();
                      detail::visit_marks(answer, count, [&](std::size_t i) { of_page.push_back(first + i); });
                      found.append(of_page);
                    });
  return found;
}

// How often each integer from `within.lowest` to `within.highest` occurs. Throws std::invalid_argument when they are
// more than 65536. 256 of them take a pass.
template <far_numbers Numbers>
  requires std::integral<typename Numbers::value_type>
[[nodiscard]] std::vector<std::uint64_t> tally(const Numbers& all,
                                               const interval<typename Numbers::value_type>& within) {
  using T = typename Numbers::value_type;
  if (within.lowest > within.highest) return {};
  const std::uint64_t first = detail::key_of(within.lowest);
  const std::uint64_t last = detail::key_of(within.highest);
  if (last - first > 0xffff) throw std::invalid_argument("far::tally: the interval has more than 65536 numbers");
  using answer = std::optional<std::vector<std::uint64_t>>;
  std::vector<std::uint64_t> counts;
  for (std::uint64_t from = first; from <= last && counts.size() <= last - first; from += detail::most_buckets) {
    const std::uint64_t to = from + std::min(detail::most_buckets - 1, last - from);
    const interval<T> of_part{detail::number_with_key<T>(from), detail::number_with_key<T>(to)};
    answer part = detail::ask_there<answer>(all, of_part, [](auto& questions) { return questions.tally(); });
    if (!part) part = detail::count_buckets(all, of_part, 0);
    counts.insert(counts.end(), part->begin(), part->end());
  }
  return counts;
}

namespace detail {

// Of the numbers that were summarized.
template <far_numbers Numbers>
[[nodiscard]] std::optional<double> quantile_of(const Numbers& all, const summary<typename Numbers::value_type>& found,
                                                double fraction) {
  if (!(fraction >= 0 && fraction <= 1)) throw std::invalid_argument("far::quantile: the fraction is from 0 to 1");
  if (found.count() == 0) return std::nullopt;
  const double rank = fraction * static_cast<double>(found.count() - 1);
  const auto first = std::min<std::uint64_t>(static_cast<std::uint64_t>(rank), found.count() - 1);
  const double share = rank - static_cast<double>(first);
  const std::uint64_t last = share > 0 ? std::min<std::uint64_t>(first + 1, found.count() - 1) : first;
  const auto [below, above] = detail::find_ranks(all, found, first, last);
  const auto low = static_cast<double>(below);
  const auto high = static_cast<double>(above);
  return low == high ? low : interpolate(low, high, share);
}

// Of the numbers that were summarized.
template <far_numbers Numbers>
[[nodiscard]] std::optional<double> median_of(const Numbers& all, const summary<typename Numbers::value_type>& found) {
  if (found.count() == 0) return std::nullopt;
  const auto [low, high] = detail::find_ranks(all, found, (found.count() - 1) / 2, found.count() / 2);
  return median_between(low, high);
}

}  // namespace detail

// The quantile of the numbers of the interval, from 0 (the least) to 1 (the greatest): interpolated between the two
// numbers beside it, bit for bit as by NumPy. So it is NaN between -infinity and infinity, and in the half next to an
// infinite number. What differs: a quantile that is one of the numbers, or lies between equal ones, is that number,
// also beside infinite ones; and those between numbers further apart than the greatest double lie there. Nothing when
// there are no numbers. Throws std::invalid_argument when `fraction` is not from 0 to 1. Integers beyond 2^53 are
// rounded to double first.
template <far_numbers Numbers>
[[nodiscard]] std::optional<double> quantile(const Numbers& all, double fraction,
                                             const interval<typename Numbers::value_type>& within = {}) {
  return detail::quantile_of(all, detail::bounds_of(all, within), fraction);
}

// The middle number, or the mean of the two in the middle: half of their sum, as by NumPy's median(), so NaN of
// -infinity and infinity. Otherwise as quantile().
template <far_numbers Numbers>
[[nodiscard]] std::optional<double> median(const Numbers& all,
                                           const interval<typename Numbers::value_type>& within = {}) {
  return detail::median_of(all, detail::bounds_of(all, within));
}

namespace detail {

template <reducible T>
[[nodiscard]] std::vector<T> numbers_with_keys(const std::vector<std::uint64_t>& keys) {
  std::vector<T> numbers;
  numbers.reserve(keys.size());
  for (const std::uint64_t key : keys) numbers.push_back(number_with_key<T>(key));
  return numbers;
}

enum class numbers_end : std::uint8_t { least, greatest };

// The last one of the `count` outermost numbers. Requires: there are so many, and `count` is not 0.
template <far_numbers Numbers>
[[nodiscard]] typename Numbers::value_type last_of_outermost(const Numbers& all,
                                                             const summary<typename Numbers::value_type>& found,
                                                             std::size_t count, numbers_end from) {
  const std::uint64_t rank = from == numbers_end::greatest ? found.count() - count : count - 1;
  return find_ranks(all, found, rank, rank).first;
}

// The keys of the numbers of the interval, of which there are few.
template <far_numbers Numbers>
[[nodiscard]] std::vector<std::uint64_t> keys_beyond(const Numbers& all,
                                                     const interval<typename Numbers::value_type>& within,
                                                     std::size_t few) {
  std::vector<std::uint64_t> keys;
  const bool is_listed = ask_there<bool>(all, within, [&](auto& questions) {
    return questions.list_all(few,
                              [&](std::uint64_t key, std::uint64_t times) { keys.insert(keys.end(), times, key); });
  });
  return is_listed ? keys : keys_of(all, within);
}

// The numbers further out than one of them, if there are any.
template <reducible T>
[[nodiscard]] std::optional<interval<T>> interval_beyond(const summary<T>& found, T number, numbers_end from) {
  const std::uint64_t key = key_of(number);
  if (from == numbers_end::greatest) {
    if (key == key_of(found.max())) return std::nullopt;
    return interval<T>{number_with_key<T>(key + 1), found.max()};
  }
  if (key == key_of(found.min())) return std::nullopt;
  return interval<T>{found.min(), number_up_to_key<T>(key - 1)};
}

// The `count` outermost of the numbers that were summarized, or all when there are fewer, from that end on.
template <far_numbers Numbers>
[[nodiscard]] std::vector<typename Numbers::value_type> outermost(const Numbers& all,
                                                                  const summary<typename Numbers::value_type>& found,
                                                                  std::size_t count, numbers_end from) {
  using T = typename Numbers::value_type;
  const std::size_t wanted = std::min<std::size_t>(count, found.count());
  if (wanted == 0) return {};
  const T last = last_of_outermost(all, found, wanted, from);
  // Those beyond it are fewer than wanted; it fills up the rest, so that many equal ones need not be listed.
  std::vector<std::uint64_t> keys;
  if (const auto beyond = interval_beyond(found, last, from)) keys = keys_beyond(all, *beyond, wanted);
  std::sort(keys.begin(), keys.end());
  if (from == numbers_end::greatest) std::reverse(keys.begin(), keys.end());
  keys.resize(wanted, key_of(last));
  return numbers_with_keys<T>(keys);
}

}  // namespace detail

// The `count` largest numbers of the interval, or all when there are fewer, in descending order. Numbers that occur
// several times are there as often.
template <far_numbers Numbers>
[[nodiscard]] std::vector<typename Numbers::value_type> largest(
    const Numbers& all, std::size_t count, const interval<typename Numbers::value_type>& within = {}) {
  return detail::outermost(all, detail::bounds_of(all, within), count, detail::numbers_end::greatest);
}
// The smallest likewise, in ascending order.
template <far_numbers Numbers>
[[nodiscard]] std::vector<typename Numbers::value_type> smallest(
    const Numbers& all, std::size_t count, const interval<typename Numbers::value_type>& within = {}) {
  return detail::outermost(all, detail::bounds_of(all, within), count, detail::numbers_end::least);
}

// The different numbers of the interval, in ascending order. They are kept in local memory.
template <far_numbers Numbers>
[[nodiscard]] std::vector<typename Numbers::value_type> distinct(
    const Numbers& all, const interval<typename Numbers::value_type>& within = {}) {
  using T = typename Numbers::value_type;
  std::vector<std::uint64_t> keys;
  if constexpr (sizeof(T) == 1) {
    const std::vector<std::uint64_t> counts = tally(all, within);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) keys.push_back(detail::key_of(within.lowest) + i);
    }
    return detail::numbers_with_keys<T>(keys);
  }
  std::size_t sorted = 0;
  const auto tidy = [&] {
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    sorted = keys.size();
  };
  const auto take = [&](std::span<const std::uint64_t> some) {
    keys.insert(keys.end(), some.begin(), some.end());
    if (keys.size() >= 2 * sorted + 4096) tidy();
  };
  const bool is_listed = detail::ask_there<bool>(all, within, [&](auto& questions) {
    return questions.list_different([&](std::uint64_t key, std::uint64_t) { take({&key, 1}); });
  });
  if (!is_listed) {
    detail::list_keys(all, detail::reduction_kind::distinct, within,
                      detail::visitor<std::span<const std::uint64_t>>(take));
  }
  tidy();
  return detail::numbers_with_keys<T>(keys);
}

}  // namespace far
