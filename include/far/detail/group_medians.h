// Medians of groups of numbers, without a copy of the numbers: they are counted, in several passes
// (docs/decisions/0088-statistics.md).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "far/detail/reduction.h"
#include "far/summary.h"

namespace far::detail {

// Each pass goes over all numbers, and narrows for each group the interval down in which the middle ones are; the last
// one collects what is in them. Takes at most 4 MiB for counts and 2 MiB for numbers.
template <typename T>
class group_medians {
 public:
  static constexpr std::size_t most_groups = 256;

  // `all`: of the numbers of all groups.
  explicit group_medians(const summary<T>& all)
      : lowest_(all.count() == 0 ? 0 : key_of(all.min())),
        highest_(all.count() == 0 ? 0 : key_of(all.max())),
        shift_(shift_for(highest_ - lowest_, buckets_of_first_pass)) {}

  // In the first pass, groups are still found. Returns whether they are few enough.
  [[nodiscard]] bool expect(std::size_t groups) {
    if (groups > most_groups) return false;
    if (pass_ == pass::first && counts_.size() < groups * buckets_of_first_pass) {
      counts_.resize(groups * buckets_of_first_pass);
    }
    return true;
  }
  // Numbers with their groups; those of groups that were not expected, and those that are not of the interval, are left
  // out.
  void add(std::span<const std::uint32_t> groups, std::span<const T> numbers, const interval<T>& valid) {
    const std::size_t known = pass_ == pass::first ? counts_.size() / buckets_of_first_pass : near_.size();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::uint32_t group = groups[i];
      if (group >= known || !(numbers[i] >= valid.lowest && numbers[i] <= valid.highest)) continue;
      const std::uint64_t key = key_of(numbers[i]);
      if (pass_ == pass::first) {
        ++counts_[group * buckets_of_first_pass + ((key - lowest_) >> shift_)];
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
    const auto low = static_cast<double>(number_with_key<T>(searches_[first].lowest));
    const auto high = static_cast<double>(number_with_key<T>(searches_[end - 1].highest));
    return low == high ? low : low / 2 + high / 2;
  }

 private:
  enum class pass : std::uint8_t { first, later, last };

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

  static constexpr std::size_t most_counts = std::size_t{1} << 19;
  static constexpr std::size_t buckets_of_first_pass = most_counts / most_groups;
  static constexpr std::uint64_t most_listed = std::uint64_t{1} << 18;

  [[nodiscard]] static unsigned shift_for(std::uint64_t range, std::size_t buckets) {
    const auto bits = static_cast<unsigned>(std::bit_width(range));
    const auto of_bucket = static_cast<unsigned>(std::bit_width(buckets) - 1);
    return bits > of_bucket ? bits - of_bucket : 0;
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
    const std::size_t groups = counts_.size() / buckets_of_first_pass;
    for (std::size_t group = 0; group < groups; ++group) {
      first_of_.push_back(searches_.size());
      const std::span<const std::uint64_t> counts =
          std::span(counts_).subspan(group * buckets_of_first_pass, buckets_of_first_pass);
      std::uint64_t count = 0;
      for (const std::uint64_t one : counts) count += one;
      if (count == 0) continue;
      const search whole{.lowest = lowest_,
                         .highest = highest_,
                         .first_rank = (count - 1) / 2,
                         .last_rank = count / 2,
                         .shift = shift_};
      narrow(whole, counts, searches_);
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
          narrow(one, std::span<const std::uint64_t>(counts_).subspan(one.counts_at, buckets), narrowed);
        }
      }
    }
    first_of.push_back(narrowed.size());
    searches_ = std::move(narrowed);
    first_of_ = std::move(first_of);
  }
  // Adds what is left of a search: two when its numbers are in different buckets.
  static void narrow(const search& wide, std::span<const std::uint64_t> counts, std::vector<search>& to) {
    const auto around = [&](std::uint64_t rank) {
      std::uint64_t below = wide.below;
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
  unsigned shift_;
  pass pass_ = pass::first;
  std::vector<std::uint64_t> counts_;
  std::vector<search> searches_;
  std::vector<std::size_t> first_of_;   // where the searches of a group begin
  std::vector<interval_of_keys> near_;  // of each group
};

}  // namespace far::detail
