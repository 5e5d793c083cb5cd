#include "preload/job_shares.h"

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "pager/pager.h"

namespace far::preload {
namespace {

constexpr std::uint64_t minimum = pager::minimum_budget_bytes;
// Room above the memory that a process uses, so that it does not evict at once: one open block of the pager.
constexpr std::uint64_t margin_bytes = 2 * mib;
// Below, a process has all that it needs, though it may miss now and then.
constexpr double lowest_demand = 10;

// The inverse of the part of its memory that a process without demand loses in one decision while others have demand.
// If the memory was in use after all, the process soon has a demand.
constexpr std::uint64_t busy_decay = 64;
constexpr std::uint64_t idle_decay = 16;
// The inverse of the part of the way down to its target that a process with demand goes in one decision: its memory is
// surely in use.
constexpr std::uint64_t demanding_decay = 8;

// The evictor keeps up to a sixteenth of the limit free ahead of need.
bool is_near_limit(const job_share& one) {
  return one.used_bytes + one.limit_bytes / 10 + margin_bytes >= one.limit_bytes;
}

bool is_demanding(const job_share& one) {
  return one.granted_bytes != 0 && one.demand >= lowest_demand && is_near_limit(one);
}

// Whether it has all that it takes, or nearly: then its misses are no reason to take anything from others.
bool has_most(const job_share& one) {
  return one.limit_bytes >= one.most_bytes - std::min(one.most_bytes, margin_bytes);
}

// The least that is set aside for a process. A small one uses less than it may; it is counted with little more than its
// use, or a dozen of shells would take 200 MiB from those that work.
std::uint64_t reserve(const job_share& one) {
  return is_demanding(one) ? minimum : std::min(minimum, one.used_bytes + margin_bytes);
}

// Scaled without overflow: shares are below 2^53 bytes.
std::uint64_t part_of(std::uint64_t whole, double weight, double all_weights) {
  return all_weights <= 0 ? 0 : static_cast<std::uint64_t>(static_cast<double>(whole) * (weight / all_weights));
}

class division {
 public:
  division(std::uint64_t budget_bytes, std::span<const job_share> among) : budget_(budget_bytes) {
    any_demand_ =
        std::any_of(among.begin(), among.end(), [](const auto& one) { return is_demanding(one) && !has_most(one); });
    for (const job_share& one : among) {
      if (is_demanding(one)) all_demand_ += weight_of_demand(one);
      reserved_ += reserve(one);
      kept_ += kept(one);
      all_use_ += weight_of_use(one);
    }
    pool_ = budget_ - std::min(budget_, kept_);
    if (any_demand_) leave_to_others(among);
  }

  // The amount that the process should come to hold.
  [[nodiscard]] std::uint64_t target(const job_share& one) const { return std::min(one.most_bytes, fair(one)); }

 private:
  [[nodiscard]] std::uint64_t fair(const job_share& one) const {
    // Too little for what is needed even so: everybody comes down, by as much as it is above its reserve.
    if (kept_ > budget_) {
      const std::uint64_t pool = budget_ > reserved_ ? budget_ - reserved_ : 0;
      return reserve(one) +
             part_of(pool, static_cast<double>(kept(one) - reserve(one)), static_cast<double>(kept_ - reserved_));
    }
    if (any_demand_) return kept(one) + (is_demanding(one) ? part_of(pool_, weight_of_demand(one), all_demand_) : 0);
    // Nobody needs more. All may grow, large and new ones most. A quarter is kept for newcomers.
    return kept(one) + part_of(pool_ - pool_ / 4, weight_of_use(one), all_use_);
  }

  // Of the pool, processes with demand do not take all of their parts where they would have more than the most that
  // they take: the rest is for the others with demand. Their parts grow by that, so more of them may reach their most.
  void leave_to_others(std::span<const job_share> among) {
    const std::uint64_t whole = pool_;
    for (std::size_t pass = 0; pass < among.size(); ++pass) {
      std::uint64_t taken = 0;
      double others = 0;
      for (const job_share& one : among) {
        if (!is_demanding(one)) continue;
        if (fair(one) >= one.most_bytes) {
          taken += one.most_bytes - minimum;
        } else {
          others += weight_of_demand(one);
        }
      }
      if (others <= 0) return;
      pool_ = whole - std::min(whole, taken);
      all_demand_ = others;
    }
  }

  // Demand falls when frames are added. With its square root, shares are not thrown back and forth.
  static double weight_of_demand(const job_share& one) { return std::sqrt(one.demand) + 1; }
  [[nodiscard]] double weight_of_use(const job_share& one) const {
    const std::uint64_t start = one.is_new ? budget_ / 8 : margin_bytes;
    return static_cast<double>(one.used_bytes + start);
  }
  // The amount that the process keeps before the rest is distributed.
  [[nodiscard]] std::uint64_t kept(const job_share& one) const {
    if (!any_demand_) return one.used_bytes + margin_bytes;
    if (is_demanding(one)) return minimum;
    // With less room than this a process that is content would be at its limit at once, and miss.
    const std::uint64_t room = margin_bytes + (one.idle ? 0 : margin_bytes + one.used_bytes / 8);
    // The evictor of a process at its limit keeps some of it free, but the process does not need less for that.
    const std::uint64_t whole = is_near_limit(one) ? std::max(one.used_bytes, one.limit_bytes) : one.used_bytes + room;
    if (!is_near_limit(one) && !one.idle) return std::max(reserve(one), whole);
    return std::max(reserve(one), whole - whole / (one.idle ? idle_decay : busy_decay));
  }

  std::uint64_t budget_;
  double all_demand_ = 0;
  double all_use_ = 0;
  std::uint64_t reserved_ = 0;
  std::uint64_t kept_ = 0;
  std::uint64_t pool_ = 0;  // left by the others for those that may grow
  bool any_demand_ = false;
};

// The grant of a process whose target is below its share. In a hurry, it is the target at once.
std::uint64_t lowered(const job_share& one, std::uint64_t target, bool hurry) {
  const std::uint64_t slowest = is_demanding(one) && !hurry
                                    ? one.granted_bytes - (one.granted_bytes - target) / demanding_decay
                                    : std::uint64_t{0};
  return std::max({target, slowest, minimum});
}

}  // namespace

std::uint64_t need_of(const engine::statistics& counted) noexcept {
  const std::uint64_t held = counted.local_bytes / page_bytes + counted.evicted_pages;
  const std::uint64_t filled = held > counted.fetched_pages ? held - counted.fetched_pages : 0;
  return counted.misses + (counted.evicted_pages > 0 ? filled / 8 : 0);
}

std::uint64_t most_held(const job_share& one, std::uint64_t granted_bytes) noexcept {
  const std::uint64_t allowed = std::max(one.limit_bytes, granted_bytes);
  return std::max(one.used_bytes, allowed <= minimum ? reserve(one) : allowed);
}

// A process that gives frames up needs time to evict, and the kernel would see both owners' frames meanwhile. So shares
// that fall are lowered first, and shares that rise get only what is free by now, in proportion to what each lacks; the
// next round continues. Far above the budget, shares fall faster.
void divide_budget(std::uint64_t budget_bytes, std::span<job_share> among) noexcept {
  if (among.size() == 1) {
    among.front().granted_bytes = std::max(budget_bytes, minimum);
    return;
  }
  const division wanted(budget_bytes, among);
  std::uint64_t all_granted = 0;
  for (const job_share& one : among) all_granted += most_held(one, one.granted_bytes);
  const bool hurry = all_granted > budget_bytes + budget_bytes / 8;
  // First the shares that fall, then those that rise, into memory that is really free.
  std::uint64_t all_held = 0;
  std::uint64_t all_missing = 0;
  for (const job_share& one : among) {
    const std::uint64_t target = wanted.target(one);
    const std::uint64_t holds =
        most_held(one, target < one.granted_bytes ? lowered(one, target, hurry) : one.granted_bytes);
    all_held += holds;
    if (target > holds) all_missing += target - holds;
  }
  const std::uint64_t free_bytes = budget_bytes > all_held ? budget_bytes - all_held : 0;
  const double share_of_missing =
      all_missing == 0 ? 0 : std::min(1.0, static_cast<double>(free_bytes) / static_cast<double>(all_missing));
  for (job_share& one : among) {
    const std::uint64_t target = wanted.target(one);
    const std::uint64_t holds =
        most_held(one, target < one.granted_bytes ? lowered(one, target, hurry) : one.granted_bytes);
    std::uint64_t granted = one.granted_bytes;
    if (target > holds) {
      granted = holds + static_cast<std::uint64_t>(static_cast<double>(target - holds) * share_of_missing);
    } else if (target < granted) {
      granted = lowered(one, target, hurry);
    }
    one.granted_bytes = std::max(round_down(granted, page_bytes), minimum);
  }
}

}  // namespace far::preload
