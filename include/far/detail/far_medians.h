// Medians of groups, and other numbers of a given rank, of which the far tier counts how many lie in each of some
// buckets (docs/decisions/0118-medians-on-servers.md).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "far/detail/between.h"
#include "far/detail/reduction.h"
#include "far/summary.h"

namespace far::detail {

// Each pass goes over all numbers, and says of each group how many lie below an interval of keys and in each bucket of
// it, and, if there are many different numbers, which are the least and the greatest in it. So the next pass has a
// narrower interval around the numbers that are looked for, until these are known. Counts are of all numbers each time:
// nothing is left over from one pass to the next but intervals. When few different numbers are left in these, a pass
// may list them in place of counting: it is the last one.
template <typename T>
class far_medians {
 public:
  // Of different numbers, in a pass.
  static constexpr std::uint64_t most_listed = std::uint64_t{1} << 18;
  // So few different numbers that it does not take bounds to get to the end.
  static constexpr bool has_bounds = sizeof(T) == 8 || std::is_floating_point_v<T>;

  // `all`: of the numbers of all groups. `buckets`: of each group, at least 2.
  far_medians(const summary<T>& all, std::size_t buckets)
      : count_(all.count()),
        lowest_(all.count() == 0 ? 0 : key_of(all.min())),
        highest_(all.count() == 0 ? 0 : key_of(all.max())),
        buckets_(buckets),
        unknown_(lowest_, highest_, buckets) {}

  // Before the first pass: numbers with these ranks are looked for in the group, 0 being the least, in place of its
  // middle ones. Requires: first <= last, and it has more.
  void look_for(std::size_t group, std::uint64_t first, std::uint64_t last) {
    of_group(group).ranks = std::array{first, last};
  }
  // Before the first pass: some of the numbers, with their groups. Then end_sample().
  void sample(std::span<const std::uint32_t> groups, std::span<const T> numbers, const interval<T>& valid,
              std::uint32_t none) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (groups[i] == none || !(numbers[i] >= valid.lowest && numbers[i] <= valid.highest)) continue;
      if (groups[i] >= sampled_.size()) sampled_.resize(groups[i] + 1);
      sampled_[groups[i]].push_back(key_of(numbers[i]));
    }
  }
  void end_sample() {
    for (std::size_t group = 0; group < sampled_.size(); ++group) guess(of_group(group), sampled_[group]);
    sampled_ = {};
  }

  // The buckets of a group in this pass; of one that was not seen yet, too.
  [[nodiscard]] group_buckets buckets_of(std::size_t group) const {
    if (group < groups_.size()) return groups_[group].buckets;
    return is_listing_ ? nothing_listed : unknown_.buckets;
  }

  // What an answer says of a group in this pass. `places`: as many as there are buckets and one; `least` and `greatest`
  // mean something only if a number is in the buckets, and there are bounds.
  void add(std::size_t group, std::uint64_t count, T least, T greatest, const std::byte* places) {
    one_group& to = of_group(group);
    to.count += count;
    bool is_any = false;
    for (std::size_t i = 0; i <= buckets_; ++i) {
      std::uint16_t here = 0;
      std::memcpy(&here, places + i * sizeof here, sizeof here);
      to.places[i] += here;
      is_any |= i > 0 && here > 0;
    }
    if (is_any) to.add_bounds(key_of(least), key_of(greatest));
  }
  // The same of numbers that are here.
  void add(std::span<const std::uint32_t> groups, std::span<const T> numbers, const interval<T>& valid,
           std::uint32_t none) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (groups[i] == none || !(numbers[i] >= valid.lowest && numbers[i] <= valid.highest)) continue;
      one_group& to = of_group(groups[i]);
      ++to.count;
      const std::uint64_t key = key_of(numbers[i]);
      if (is_listing_) {
        if (key >= to.buckets.lowest && (key - to.buckets.lowest) >> to.buckets.shift == 0) add_to_list(to, key, 1);
        if (key < to.buckets.lowest) ++to.places[0];
      } else if (key < to.buckets.lowest) {
        ++to.places[0];
      } else if (const std::uint64_t bucket = (key - to.buckets.lowest) >> to.buckets.shift; bucket < buckets_) {
        ++to.places[bucket + 1];
        to.add_bounds(key, key);
      }
    }
  }
  // A pass is over. Returns whether there has to be another.
  [[nodiscard]] bool next() {
    bool is_any_left = false;
    for (one_group& one : groups_) is_any_left |= one.narrow(lowest_, highest_);
    return is_any_left;
  }

  // After a pass: how many numbers are left to be listed, or so. A group of whose numbers nothing is known, or too
  // little, has very many.
  [[nodiscard]] std::uint64_t left_to_list() const {
    std::uint64_t all = 0;
    for (const one_group& one : groups_) {
      const std::uint64_t left = one.candidates();
      if (left > std::numeric_limits<std::uint64_t>::max() - all) return std::numeric_limits<std::uint64_t>::max();
      all += left;
    }
    return all;
  }
  // The next pass lists: add_listed() takes the place of the first add().
  void begin_list() {
    is_listing_ = true;
    for (one_group& one : groups_) one.begin_list();
  }
  // What an answer says of a group: how many of its numbers lie below its bucket, and which are in it.
  void add_listed(std::size_t group, std::uint64_t count, std::uint64_t below, std::size_t different,
                  const std::byte* numbers, const std::byte* times) {
    one_group& to = of_group(group);
    to.count += count;
    to.places[0] += below;
    for (std::size_t i = 0; i < different; ++i) {
      T number{};
      std::uint16_t often = 0;
      std::memcpy(&number, numbers + i * sizeof number, sizeof number);
      std::memcpy(&often, times + i * sizeof often, sizeof often);
      add_to_list(to, key_of(number), often);
    }
  }
  // There are so many different numbers that they had better be counted.
  [[nodiscard]] bool is_list_too_long() const { return listed_ > most_listed; }
  // The pass that lists is over: all is found.
  void end_list() {
    for (one_group& one : groups_) one.take_list();
    cancel_list();
  }
  // It is not, and all is as before it.
  void cancel_list() {
    is_listing_ = false;
    listed_ = 0;
    for (one_group& one : groups_) static_cast<void>(one.prepare());
  }

  // After the last pass: the two numbers. Nothing for a group without numbers.
  [[nodiscard]] std::optional<std::pair<T, T>> found_in(std::size_t group) const {
    if (group >= groups_.size()) return std::nullopt;
    const auto& [first, last] = groups_[group].searches;
    if (!first.found || !last.found) return std::nullopt;
    return std::pair{number_with_key<T>(*first.found), number_with_key<T>(*last.found)};
  }
  // What lies between them.
  [[nodiscard]] std::optional<double> of(std::size_t group) const {
    const auto found = found_in(group);
    if (!found) return std::nullopt;
    return median_between(found->first, found->second);
  }

 private:
  static constexpr std::uint64_t too_many = std::numeric_limits<std::uint64_t>::max() / 8;
  static constexpr group_buckets nothing_listed{.lowest = std::numeric_limits<std::uint64_t>::max(), .shift = 0};

  // For one number: it lies in this interval of keys, ends included.
  struct search {
    std::uint64_t lowest = 0;
    std::uint64_t highest = 0;
    std::optional<std::uint64_t> found = {};
    std::uint64_t candidates = too_many;  // numbers of the interval, or some more

    void narrow(std::uint64_t from, std::uint64_t to, std::uint64_t numbers) {
      lowest = std::max(lowest, from);
      highest = std::min(highest, to);
      candidates = std::min(candidates, numbers);
      // Writers that should not be there may leave nothing of it.
      if (lowest >= highest) found = std::min(lowest, highest);
    }
  };

  struct one_group {
    one_group(std::uint64_t lowest, std::uint64_t highest, std::size_t bucket_count) : places(bucket_count + 1) {
      searches.fill({.lowest = lowest, .highest = highest});
      look_between(lowest, highest);
    }

    void look_between(std::uint64_t lowest, std::uint64_t highest) {
      buckets = {.lowest = lowest, .shift = 0};
      while ((highest - lowest) >> buckets.shift >= places.size() - 1) ++buckets.shift;
    }
    void add_bounds(std::uint64_t lower, std::uint64_t upper) {
      least = std::min(least, lower);
      greatest = std::max(greatest, upper);
    }

    // Returns whether something is left to be found. Then the next pass may begin.
    [[nodiscard]] bool narrow(std::uint64_t lowest, std::uint64_t highest) {
      std::uint64_t in_buckets = 0;
      for (std::size_t i = 1; i < places.size(); ++i) in_buckets += places[i];
      for (std::size_t i = 0; i < searches.size() && count > 0; ++i) {
        if (!searches[i].found) narrow(searches[i], rank_of(i), in_buckets, lowest, highest);
      }
      const bool has_numbers = count > 0;
      for (search& one : searches) one.candidates = has_numbers ? one.candidates : 0;
      return prepare() && has_numbers;
    }
    [[nodiscard]] std::uint64_t rank_of(std::size_t search_number) const {
      const std::array<std::uint64_t, 2> middle{count == 0 ? 0 : (count - 1) / 2, count / 2};
      return ranks.value_or(middle)[search_number];
    }
    // For a pass. Returns whether something is left to be found: one after the other, where they are apart.
    [[nodiscard]] bool prepare() {
      const auto left = std::ranges::find_if(searches, [](const search& one) { return !one.found; });
      if (left != searches.end()) look_between(left->lowest, left->highest);
      count = 0;
      std::ranges::fill(places, 0);
      least = ~std::uint64_t{0};
      greatest = 0;
      listed.clear();
      return left != searches.end();
    }

    // The interval of all that is looked for; nothing if it is all found.
    [[nodiscard]] std::optional<search> whole() const {
      std::optional<search> found;
      for (const search& one : searches) {
        if (one.found) continue;
        if (!found) {
          found = one;
        } else if (one.lowest != found->lowest || one.highest != found->highest) {
          // Between the two lies nothing, because one follows the other.
          found = search{.lowest = std::min(found->lowest, one.lowest),
                         .highest = std::max(found->highest, one.highest),
                         .candidates = std::min(too_many, found->candidates + one.candidates)};
        }
      }
      return found;
    }
    [[nodiscard]] std::uint64_t candidates() const {
      const std::optional<search> one = whole();
      if (!one || one->candidates == 0) return 0;
      return (one->highest - one->lowest) >> 63 != 0 ? too_many : one->candidates;
    }
    void begin_list() {
      const std::optional<search> one = whole();
      buckets = nothing_listed;
      if (!one) return;
      const auto bits = static_cast<std::uint8_t>(std::bit_width(one->highest - one->lowest));
      buckets = {.lowest = one->lowest, .shift = std::min<std::uint8_t>(bits, 63)};
    }
    void take_list() {
      for (std::size_t i = 0; i < searches.size(); ++i) {
        if (searches[i].found || count == 0) continue;
        const std::uint64_t rank = rank_of(i);
        // Writers that should not be there may leave nothing of it.
        std::uint64_t key = searches[i].lowest;
        std::uint64_t below = places[0];
        for (const auto& [listed_key, times] : listed) {
          if (below > rank) break;
          key = listed_key;
          below += times;
        }
        searches[i].found = key;
      }
    }

    void narrow(search& one, std::uint64_t rank, std::uint64_t in_buckets, std::uint64_t lowest,
                std::uint64_t highest) const {
      std::uint64_t below = places[0];
      if (rank < below) return one.narrow(lowest, buckets.lowest == 0 ? 0 : buckets.lowest - 1, below);
      if (rank >= below + in_buckets) {
        return one.narrow(first_above(highest), highest, count - std::min(count, below + in_buckets));
      }
      if (has_bounds && rank == below) return one.narrow(least, least, 1);
      if (has_bounds && rank == below + in_buckets - 1) return one.narrow(greatest, greatest, 1);
      std::size_t bucket = 0;
      while (below + places[bucket + 1] <= rank) below += places[++bucket];
      const std::uint64_t from = buckets.lowest + (std::uint64_t{bucket} << buckets.shift);
      const std::uint64_t width = (std::uint64_t{1} << buckets.shift) - 1;
      const std::uint64_t to = from + std::min(width, ~from);
      one.narrow(has_bounds ? std::max(from, least) : from, has_bounds ? std::min(to, greatest) : to,
                 places[bucket + 1]);
    }
    [[nodiscard]] std::uint64_t first_above(std::uint64_t highest) const {
      const std::uint64_t bucket_count = places.size() - 1;
      if (highest < buckets.lowest || (highest - buckets.lowest) >> buckets.shift < bucket_count) return highest;
      return buckets.lowest + (bucket_count << buckets.shift);
    }

    group_buckets buckets;
    std::optional<std::array<std::uint64_t, 2>> ranks;  // none: the middle ones
    std::uint64_t count = 0;
    std::vector<std::uint64_t> places;
    std::uint64_t least = ~std::uint64_t{0};
    std::uint64_t greatest = 0;
    std::map<std::uint64_t, std::uint64_t> listed;  // how often each key occurs
    std::array<search, 2> searches{};
  };

  void add_to_list(one_group& of, std::uint64_t key, std::uint64_t times) {
    if (is_list_too_long()) return;
    std::uint64_t& known = of.listed[key];
    if (known == 0) ++listed_;
    known += times;
  }

  [[nodiscard]] one_group& of_group(std::size_t group) {
    while (groups_.size() <= group) groups_.push_back(unknown_);
    return groups_[group];
  }
  // Where the middle of a group, or the number of a rank, probably is: the rank of the median in a random sample of n
  // has a deviation of half the root of n, and five of these lie on each side. For ranks, which are looked for in a
  // column, twice as many, because its sample is made of pieces.
  void guess(one_group& of, std::vector<std::uint64_t>& keys) const {
    constexpr std::size_t fewest = 64;
    if (keys.size() < fewest) return;
    std::sort(keys.begin(), keys.end());
    const auto size = static_cast<double>(keys.size());
    const double share =
        of.ranks && count_ > 1 ? static_cast<double>((*of.ranks)[0]) / static_cast<double>(count_ - 1) : 0.5;
    const double middle = share * size;
    const double deviation = std::sqrt(size * share * std::max(0.0, 1 - share));
    const double beside = of.ranks ? 10 * deviation + 4 : 5 * deviation;
    const bool begins = middle - beside < 0;
    const bool ends = middle + beside >= size;
    std::uint64_t from = begins ? lowest_ : keys[static_cast<std::size_t>(middle - beside)];
    const std::uint64_t to = ends ? highest_ : keys[static_cast<std::size_t>(middle + beside)];
    // Buckets of single keys that would be left over.
    if (to - from < buckets_) from -= std::min(from - lowest_, (buckets_ - (to - from)) / 2);
    of.look_between(from, to);
  }

  std::uint64_t count_;  // of the numbers of all groups
  std::uint64_t lowest_;
  std::uint64_t highest_;
  std::size_t buckets_;
  bool is_listing_ = false;
  std::uint64_t listed_ = 0;  // different numbers of all groups
  one_group unknown_;         // one that nothing is known of
  std::vector<one_group> groups_;
  std::vector<std::vector<std::uint64_t>> sampled_;  // keys of each group
};

}  // namespace far::detail
