#include "preload/job_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/units.h"
#include "pager/pager.h"

namespace far::preload {
namespace {

constexpr std::uint64_t budget_bytes = 256 * mib;

// Processes as far as shares are concerned: each wants so many bytes, and misses the more often the fewer it may hold.
class world {
 public:
  struct process {
    std::uint64_t wanted_bytes = 0;
    double accesses = 20'000;  // a second, of which those miss that find no frame
    bool stopped = false;      // hears of nothing
    job_share share;
  };

  std::size_t add(std::uint64_t wanted_bytes, double accesses = 20'000) {
    excess_bytes_ = pager::minimum_budget_bytes;  // until the others have come down
    processes_.push_back({wanted_bytes, accesses, false, {}});
    processes_.back().share.is_new = true;
    decide();
    return processes_.size() - 1;
  }
  void end(std::size_t index) { processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(index)); }
  process& operator[](std::size_t index) { return processes_[index]; }

  // One period: all hear of the last decision, work, and somebody decides anew.
  void step() {
    for (process& one : processes_) {
      if (one.stopped) continue;
      one.share.limit_bytes = one.share.granted_bytes;
      one.share.is_new = false;
      const std::uint64_t before = one.share.used_bytes;
      const std::uint64_t most_bytes = one.share.limit_bytes - one.share.limit_bytes / 32;
      one.share.used_bytes = std::min(one.accesses > 0 ? one.wanted_bytes : std::max(before, 2 * mib), most_bytes);
      const double missing =
          one.wanted_bytes == 0 ? 0
                                : 1 - static_cast<double>(one.share.used_bytes) / static_cast<double>(one.wanted_bytes);
      const double filled = one.share.used_bytes > before ? 1000 : 0;
      one.share.demand = (one.share.demand * 3 + missing * one.accesses + filled) / 4;
      one.share.idle = one.accesses == 0;
    }
    decide();
    after_step();
  }
  void after_step() {
    if (!may_exceed && budget_ >= processes_.size() * pager::minimum_budget_bytes) {
      EXPECT_LE(used(), budget_ + excess_bytes_);
    }
    excess_bytes_ -= excess_bytes_ / 2;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  void set_budget(std::uint64_t bytes) { budget_ = bytes; }
  bool may_exceed = false;  // for a while after the budget was lowered
  [[nodiscard]] std::uint64_t used() const {
    return std::accumulate(processes_.begin(), processes_.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const process& one) { return sum + one.share.used_bytes; });
  }
  [[nodiscard]] std::uint64_t granted(std::size_t index) const { return processes_[index].share.granted_bytes; }

 private:
  void decide() {
    std::vector<job_share> shares;
    for (const process& one : processes_) shares.push_back(one.share);
    divide_budget(budget_, shares);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      processes_[i].share = shares[i];
      EXPECT_GE(shares[i].granted_bytes, pager::minimum_budget_bytes);
      EXPECT_EQ(shares[i].granted_bytes % page_bytes, 0u);
    }
  }

  std::uint64_t budget_ = budget_bytes;
  std::uint64_t excess_bytes_ = 0;
  std::vector<process> processes_;
};

TEST(JobShares, OneProcessHasItAll) {
  world job;
  const std::size_t only = job.add(1 * gib);
  EXPECT_EQ(job.granted(only), budget_bytes);
  job.steps(10);
  EXPECT_EQ(job.granted(only), budget_bytes);
}

TEST(JobShares, AShellLeavesNearlyEverythingToItsProgram) {
  world job;
  job.add(2 * mib, 0);
  const std::size_t program = job.add(1 * gib);
  job.steps(10);
  EXPECT_GE(job.granted(program), budget_bytes - 8 * mib);
}

TEST(JobShares, EqualsShareEqually) {
  world job;
  const std::size_t first = job.add(1 * gib);
  job.steps(10);
  const std::size_t second = job.add(1 * gib);
  EXPECT_GE(job.granted(second), pager::minimum_budget_bytes) << "who comes has a share at once";
  job.steps(50);
  EXPECT_NEAR(static_cast<double>(job.granted(first)), static_cast<double>(job.granted(second)), 0.1 * budget_bytes);
  EXPECT_GE(job.used(), budget_bytes * 9 / 10);
}

TEST(JobShares, TheShareFollowsDemand) {
  world job;
  const std::size_t first = job.add(200 * mib);
  const std::size_t second = job.add(200 * mib);
  job.steps(50);
  job[first].accesses = 0;
  job.steps(100);
  EXPECT_GE(job[second].share.used_bytes, 180 * mib) << "what one leaves alone goes to the other";
  job[first].accesses = 20'000;
  job[second].accesses = 0;
  job.steps(100);
  EXPECT_GE(job[first].share.used_bytes, 180 * mib) << "and comes back when it is wanted again";
}

TEST(JobShares, NobodyIsEvictedWhereAllFits) {
  world job;
  const std::size_t first = job.add(100 * mib);
  const std::size_t second = job.add(100 * mib);
  job.steps(50);
  EXPECT_EQ(job[first].share.used_bytes, 100 * mib);
  EXPECT_EQ(job[second].share.used_bytes, 100 * mib);
}

TEST(JobShares, WhatAnEndedProcessHeldIsFree) {
  world job;
  const std::size_t first = job.add(1 * gib);
  const std::size_t second = job.add(1 * gib);
  job.steps(50);
  job.end(second);
  job.steps(2);
  EXPECT_EQ(job.granted(first), budget_bytes);
}

TEST(JobShares, WhoHearsOfNothingLosesNothingThatOthersGet) {
  world job;
  const std::size_t deaf = job.add(200 * mib);
  job.steps(10);
  job[deaf].stopped = true;
  const std::size_t other = job.add(1 * gib);
  job.steps(50);
  EXPECT_EQ(job[deaf].share.used_bytes, 200 * mib);
  EXPECT_LE(job[other].share.used_bytes, budget_bytes - 200 * mib);
}

TEST(JobShares, ASmallerBudgetReachesAll) {
  world job;
  for (int i = 0; i < 3; ++i) job.add(1 * gib);
  job.steps(50);
  job.set_budget(96 * mib);
  job.may_exceed = true;
  job.steps(30);
  job.may_exceed = false;
  job.steps(20);
  job.set_budget(512 * mib);
  job.steps(50);
  EXPECT_GE(job.used(), 480 * mib);
}

TEST(JobShares, MoreProcessesThanMinimaHaveTheMinimumEach) {
  world job;
  for (int i = 0; i < 40; ++i) job.add(1 * gib);
  job.steps(10);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(job.granted(i), pager::minimum_budget_bytes);
}

TEST(JobShares, ManyIdleOnesCostWhatTheyUse) {
  world job;
  for (int i = 0; i < 12; ++i) job.add(2 * mib, 0);
  const std::size_t program = job.add(1 * gib);
  job.steps(30);
  EXPECT_GE(job.granted(program), budget_bytes - 12 * 4 * mib - 16 * mib);
}

}  // namespace
}  // namespace far::preload
