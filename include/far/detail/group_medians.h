// Medians of groups of numbers, without a copy of the numbers: they are counted, in several passes
// (docs/decisions/0088-statistics.md).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "far/detail/between.h"
#include "far/detail/reduction.h"
#include "far/summary.h"

namespace far::detail {

// Each pass goes over all numbers, and narrows for each group the interval down in which the middle ones are; the last
// one collects what is in them. A sample of the numbers says where to begin: then one pass is enough for integers whose
// middle ones are close together. Takes at most 4 MiB for counts and 2 MiB for numbers, and 8 bytes for one of a
// sample.
template <typename T>
class group_medians {
 public:
  static constexpr std::size_t most_groups = 256;

  // `all`: of the numbers of all groups.
  explicit group_medians(const summary<T>& all)
      : lowest_(all.count() == 0 ? 0 : key_of(all.min())), highest_(all.count() == 0 ? 0 : key_of(all.max())) {}

  // Before the first pass: some of the numbers, with their groups.
  void sample(std::span<const std::uint32_t> groups, std::span<const T> numbers, const interval<T>& valid) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (groups[i] >= most_groups || !(numbers[i] >= valid.lowest && numbers[i] <= valid.highest)) continue;
      if (groups[i] >= sampled_.size()) sampled_.resize(groups[i] + 1);
      sampled_[groups[i]].push_back(key_of(numbers[i]));
    }
  }

  // In the first pass, groups are still found. Returns whether they are few enough.
  [[nodiscard]] bool expect(std::size_t groups) {
    if (groups > most_groups) return false;
    if (pass_ != pass::first) return true;
    while (guesses_.size() < groups) guesses_.push_back(guess(guesses_.size()));
    counts_.resize(guesses_.size() * counts_of_first_pass);
    return true;
  }
  // Numbers with their groups; those of groups that were not expected, and those that are not of the interval, are left
  // out.
  void add(std::span<const std::uint32_t> groups, std::span<const T> numbers, const interval<T>& valid) {
    const std::size_t known = pass_ == pass::first ? guesses_.size() : near_.size();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::uint32_t group = groups[i];
      if (group >= known || !(numbers[i] >= valid.lowest && numbers[i] <= valid.highest)) continue;
      const std::uint64_t key = key_of(numbers[i]);
      if (pass_ == pass::first) {
        ++counts_[group * counts_of_first_pass + guesses_[group].count_at(key)];
      } else if (key - near_[group].lowest <= near_[group].width) {
        add_near(group, key);
      }
    }
  }
  // A pass is over. Returns whether there has to be another.
  [[nodiscard]] bool next() {
    if (pass_ == pass::first) {
      begin_searches();
    } else if (pass_ == pass::last) {
      for (search& one : searches_) one.finish();
      return false;
    } else {
      narrow_all();
    }
    return prepare();
  }

  // After the last pass. Nothing for a group without numbers.
  [[nodiscard]] std::optional<double> of(std::size_t group) const {
    const std::size_t first = first_of_[group];
    const std::size_t end = first_of_[group + 1];
    if (first == end) return std::nullopt;
    return median_between(number_with_key<T>(searches_[first].lowest), number_with_key<T>(searches_[end - 1].highest));
  }

 private:
  enum class pass : std::uint8_t { first, later, last };

  static constexpr std::size_t most_counts = std::size_t{1} << 19;
  static constexpr std::size_t buckets_of_first_pass = most_counts / most_groups;
  // Of those below the guessed interval, of its buckets, and of those above it.
  static constexpr std::size_t counts_of_first_pass = buckets_of_first_pass + 2;
  static constexpr std::uint64_t most_listed = std::uint64_t{1} << 18;

  // Where the middle numbers of a group probably are.
  struct guessed_interval {
    std::uint64_t lowest = 0;
    std::uint64_t width = 0;
    unsigned shift = 0;

    [[nodiscard]] std::size_t count_at(std::uint64_t key) const {
      if (key < lowest) return 0;
      return key - lowest > width ? counts_of_first_pass - 1 : ((key - lowest) >> shift) + 1;
    }
  };

  // The keys that the searches of a group are about, and others between them.
  struct interval_of_keys {
    std::uint64_t lowest = ~std::uint64_t{0};
    std::uint64_t width = 0;
  };

  // For one of the numbers in the middle, or for two that are not yet apart. Its interval, of keys, has `count`
  // numbers, and `below` are less. Once it is done, its bounds are the numbers.
  struct search {
    std::uint64_t lowest = 0;
    std::uint64_t highest = 0;
    std::uint64_t below = 0;
    std::uint64_t count = 0;
    std::uint64_t first_rank = 0;
    std::uint64_t last_rank = 0;
    unsigned shift = 0;
    std::size_t counts_at = 0;
    std::vector<std::uint64_t> listed = {};

    [[nodiscard]] bool is_done() const { return lowest == highest; }
    void finish() {
      if (is_done()) return;
      std::sort(listed.begin(), listed.end());
      lowest = listed[first_rank - below];
      highest = listed[last_rank - below];
      listed = {};
    }
  };

  [[nodiscard]] static unsigned shift_for(std::uint64_t range, std::size_t buckets) {
    const auto bits = static_cast<unsigned>(std::bit_width(range));
    const auto of_bucket = static_cast<unsigned>(std::bit_width(buckets) - 1);
    return bits > of_bucket ? bits - of_bucket : 0;
  }

  [[nodiscard]] guessed_interval guess(std::size_t group) {
    constexpr std::size_t fewest = 64;
    guessed_interval found{lowest_, highest_ - lowest_, shift_for(highest_ - lowest_, buckets_of_first_pass)};
    if (group >= sampled_.size() || sampled_[group].size() < fewest) return found;
    std::vector<std::uint64_t> keys = std::move(sampled_[group]);
    std::sort(keys.begin(), keys.end());
    // The rank of the median in a random sample of n has a deviation of half the root of n: five of these on each side.
    const std::size_t middle = keys.size() / 2;
    const auto beside = static_cast<std::size_t>(2.5 * std::sqrt(static_cast<double>(keys.size())));
    found.lowest = keys[middle - std::min(middle, beside)];
    found.width = keys[std::min(middle + beside, keys.size() - 1)] - found.lowest;
    // Buckets of single keys that would be left over.
    if (found.width < buckets_of_first_pass) {
      found.lowest -= std::min(found.lowest - lowest_, (buckets_of_first_pass - found.width) / 2);
      found.width = std::min<std::uint64_t>(highest_ - found.lowest, buckets_of_first_pass - 1);
    }
    found.shift = shift_for(found.width, buckets_of_first_pass);
    return found;
  }
  void add_near(std::uint32_t group, std::uint64_t key) {
    for (std::size_t i = first_of_[group]; i < first_of_[group + 1]; ++i) {
      search& one = searches_[i];
      if (one.is_done() || key < one.lowest || key > one.highest) continue;
      if (pass_ == pass::last) {
        one.listed.push_back(key);
      } else {
        ++counts_[one.counts_at + ((key - one.lowest) >> one.shift)];
      }
    }
  }
  void begin_searches() {
    for (std::size_t group = 0; group < guesses_.size(); ++group) {
      first_of_.push_back(searches_.size());
      const std::span<const std::uint64_t> counts =
          std::span(counts_).subspan(group * counts_of_first_pass, counts_of_first_pass);
      std::uint64_t count = 0;
      for (const std::uint64_t one : counts) count += one;
      if (count == 0) continue;
      const search guessed{.lowest = guesses_[group].lowest,
                           .highest = guesses_[group].lowest + guesses_[group].width,
                           .below = counts.front(),
                           .count = count - counts.front() - counts.back(),
                           .first_rank = (count - 1) / 2,
                           .last_rank = count / 2,
                           .shift = guesses_[group].shift};
      narrow(guessed, counts.subspan(1, buckets_of_first_pass), counts.back(), searches_);
    }
    first_of_.push_back(searches_.size());
  }
  void narrow_all() {
    std::vector<search> narrowed;
    std::vector<std::size_t> first_of;
    for (std::size_t group = 0; group + 1 < first_of_.size(); ++group) {
      first_of.push_back(narrowed.size());
      for (std::size_t i = first_of_[group]; i < first_of_[group + 1]; ++i) {
        search& one = searches_[i];
        if (one.is_done()) {
          narrowed.push_back(std::move(one));
        } else {
          const std::size_t buckets = ((one.highest - one.lowest) >> one.shift) + 1;
          narrow(one, std::span<const std::uint64_t>(counts_).subspan(one.counts_at, buckets), 0, narrowed);
        }
      }
    }
    first_of.push_back(narrowed.size());
    searches_ = std::move(narrowed);
    first_of_ = std::move(first_of);
  }
  // Adds what is left of a search: two when its numbers are in different buckets. A search that was guessed may miss
  // them; `above` are greater than its numbers.
  void narrow(const search& wide, std::span<const std::uint64_t> counts, std::uint64_t above,
              std::vector<search>& to) const {
    const auto around = [&](std::uint64_t rank) {
      if (rank < wide.below) {
        return search{
            .lowest = lowest_, .highest = wide.lowest - 1, .count = wide.below, .first_rank = rank, .last_rank = rank};
      }
      std::uint64_t below = wide.below;
      if (rank >= below + wide.count) {
        return search{.lowest = wide.highest + 1,
                      .highest = highest_,
                      .below = below + wide.count,
                      .count = above,
                      .first_rank = rank,
                      .last_rank = rank};
      }
      std::size_t bucket = 0;
      while (below + counts[bucket] <= rank) below += counts[bucket++];
      search found{.lowest = wide.lowest + (std::uint64_t{bucket} << wide.shift),
                   .below = below,
                   .count = counts[bucket],
                   .first_rank = rank,
                   .last_rank = rank};
      found.highest = found.lowest + std::min(wide.highest - found.lowest, (std::uint64_t{1} << wide.shift) - 1);
      return found;
    };
    search first = around(wide.first_rank);
    search last = around(wide.last_rank);
    if (first.lowest == last.lowest) {
      first.last_rank = wide.last_rank;
      return to.push_back(std::move(first));
    }
    to.push_back(std::move(first));
    to.push_back(std::move(last));
  }
  void note_near() {
    near_.assign(first_of_.size() - 1, {});
    for (std::size_t group = 0; group < near_.size(); ++group) {
      for (std::size_t i = first_of_[group]; i < first_of_[group + 1]; ++i) {
        const search& one = searches_[i];
        if (one.is_done()) continue;
        // In ascending order.
        near_[group].lowest = std::min(near_[group].lowest, one.lowest);
        near_[group].width = one.highest - near_[group].lowest;
      }
    }
  }
  // For another pass. Returns whether it is needed.
  [[nodiscard]] bool prepare() {
    std::uint64_t left = 0;
    std::size_t searches = 0;
    for (const search& one : searches_) {
      if (one.is_done()) continue;
      left += one.count;
      ++searches;
    }
    counts_.clear();
    note_near();
    if (left <= most_listed) {
      pass_ = pass::last;
      return left > 0;
    }
    pass_ = pass::later;
    const std::size_t buckets = std::bit_floor(most_counts / searches);
    for (search& one : searches_) {
      if (one.is_done()) continue;
      one.shift = shift_for(one.highest - one.lowest, buckets);
      one.counts_at = counts_.size();
      counts_.resize(counts_.size() + buckets);
    }
    return true;
  }

  std::uint64_t lowest_;
  std::uint64_t highest_;
  pass pass_ = pass::first;
  std::vector<std::vector<std::uint64_t>> sampled_;  // keys of each group
  std::vector<guessed_interval> guesses_;            // of each group
  std::vector<std::uint64_t> counts_;
  std::vector<search> searches_;
  std::vector<std::size_t> first_of_;   // where the searches of a group begin
  std::vector<interval_of_keys> near_;  // of each group
};

}  // namespace far::detail
