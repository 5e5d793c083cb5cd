#include "preload/pressure_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/units.h"
#include "pager/pager.h"

namespace far::preload {
namespace {

// A program that would hold `wanted_bytes` if it could. In one step it takes or gives back so much at most. One that
// evicts keeps a part of its budget free ahead of need.
struct simulated_job {
  std::uint64_t wanted_bytes;
  std::uint64_t budget_bytes;
  std::uint64_t local_bytes = 0;

  static constexpr std::uint64_t most_in_a_step = 256 * mib;

  void step() {
    const std::uint64_t aim = wanted_bytes <= budget_bytes ? wanted_bytes : budget_bytes - budget_bytes / 24;
    if (local_bytes < aim) local_bytes = std::min(aim, local_bytes + most_in_a_step);
    if (local_bytes > aim) local_bytes = std::max(aim, local_bytes - std::min(local_bytes, most_in_a_step));
  }
};

// A machine, what others use of it, and jobs that do not know of one another.
struct simulated_machine {
  std::uint64_t usable_bytes = 8 * gib;
  std::uint64_t used_by_others = 0;
  double stalled = 0;
  std::vector<simulated_job> jobs{};
  std::uint64_t least_available = usable_bytes;

  [[nodiscard]] std::uint64_t available() const {
    std::uint64_t used = used_by_others;
    for (const simulated_job& one : jobs) used += one.local_bytes;
    return usable_bytes - std::min(usable_bytes, used);
  }
  void run(int steps) {
    least_available = usable_bytes;
    for (int i = 0; i < steps; ++i) {
      for (simulated_job& one : jobs) {
        one.budget_bytes = next_budget(one.budget_bytes, {usable_bytes, available(), one.local_bytes, stalled, false});
      }
      for (simulated_job& one : jobs) one.step();
      least_available = std::min(least_available, available());
    }
  }
};

TEST(PressureBudget, GrowsIntoWhatIsFreeAndLeavesTheReserve) {
  simulated_machine machine{.jobs = {{100 * gib, 512 * mib}}};
  machine.run(100);
  EXPECT_GT(machine.jobs[0].local_bytes, 5 * gib);
  machine.run(2000);
  EXPECT_GT(machine.jobs[0].local_bytes, 8 * gib - 2 * memory_reserve(8 * gib));
  EXPECT_GT(machine.least_available, memory_reserve(8 * gib) * 7 / 8);
}

TEST(PressureBudget, DoesNotGrowWithoutUseForIt) {
  simulated_machine machine{.jobs = {{100 * mib, 512 * mib}}};
  machine.run(1000);
  EXPECT_LE(machine.jobs[0].budget_bytes, 512 * mib);
  EXPECT_EQ(machine.jobs[0].local_bytes, 100 * mib);
}

TEST(PressureBudget, GivesBackWhileOthersGrowAndTakesItAgain) {
  simulated_machine machine{.jobs = {{100 * gib, 512 * mib}}};
  machine.run(200);
  for (int i = 0; i < 100; ++i) {  // 5 GiB in 20 seconds
    machine.used_by_others += 51 * mib;
    machine.run(1);
    ASSERT_GT(machine.available(), memory_reserve(machine.usable_bytes) / 2) << "after " << i << " steps";
  }
  EXPECT_LT(machine.jobs[0].local_bytes, 3 * gib);
  machine.used_by_others = 0;
  machine.run(100);
  EXPECT_GT(machine.jobs[0].local_bytes, 5 * gib);
}

TEST(PressureBudget, ABudgetThatNobodyUsesShrinksWithWhatThereIs) {
  simulated_machine machine{.jobs = {{100 * mib, 4 * gib}}};
  machine.used_by_others = 6 * gib;
  machine.run(1);
  EXPECT_LE(machine.jobs[0].budget_bytes, 2 * gib);
}

TEST(PressureBudget, NeverBelowTheMinimum) {
  simulated_machine machine{.jobs = {{100 * gib, 4 * gib}}};
  machine.used_by_others = 8 * gib;
  machine.run(200);
  EXPECT_EQ(machine.jobs[0].budget_bytes, pager::minimum_budget_bytes);
}

TEST(PressureBudget, JobsComeToEqualParts) {
  simulated_machine machine{.jobs = {{100 * gib, 6 * gib, 6 * gib}, {100 * gib, 16 * mib}, {100 * gib, 16 * mib}}};
  machine.run(1500);  // five minutes
  const auto [least, most] =
      std::minmax_element(machine.jobs.begin(), machine.jobs.end(),
                          [](const simulated_job& a, const simulated_job& b) { return a.local_bytes < b.local_bytes; });
  EXPECT_LT(most->local_bytes, least->local_bytes * 5 / 4);
  EXPECT_GT(machine.least_available, memory_reserve(8 * gib) / 2);
}

// Once neither moved on, when what was free was about what the second kept free of its own budget.
TEST(PressureBudget, WhoHasAllThatItNeedsGivesSomeOfItToWhoHasLess) {
  simulated_machine machine{.usable_bytes = 512 * mib,
                            .used_by_others = 18 * mib,
                            .jobs = {{320 * mib, 324 * mib, 320 * mib}, {320 * mib, 100 * mib, 96 * mib}}};
  machine.run(300);  // a minute
  EXPECT_GT(machine.jobs[1].local_bytes, 128 * mib);
  machine.run(1200);
  EXPECT_GT(machine.jobs[1].local_bytes, machine.jobs[0].local_bytes * 3 / 4);
  EXPECT_GT(machine.least_available, memory_reserve(512 * mib) / 2);
}

TEST(PressureBudget, WhoNeedsLittleKeepsItAndTheOtherHasTheRest) {
  simulated_machine machine{.jobs = {{512 * mib, 512 * mib}, {100 * gib, 512 * mib}}};
  machine.run(5000);
  EXPECT_GT(machine.jobs[0].local_bytes, 448 * mib);
  EXPECT_GT(machine.jobs[1].local_bytes, 5 * gib);
}

TEST(PressureBudget, StallsShrinkItWhereMemoryIsShort) {
  const std::uint64_t available = 2 * memory_reserve(8 * gib);
  EXPECT_EQ(next_budget(4 * gib, {8 * gib, available, 4 * gib, 0.04, false}), 4 * gib + 4 * mib);
  EXPECT_EQ(next_budget(4 * gib, {8 * gib, available, 4 * gib, 0.30, false}), 3 * gib);
  const std::uint64_t some = next_budget(4 * gib, {8 * gib, available, 4 * gib, 0.10, false});
  EXPECT_GT(some, 3 * gib);
  EXPECT_LT(some, 4 * gib);
  // A cgroup elsewhere is at its limit.
  EXPECT_GE(next_budget(1 * gib, {8 * gib, 6 * gib, 1 * gib, 0.9, false}), 1 * gib);
}

TEST(PressureBudget, RunningOutShrinksItAtOnce) {
  EXPECT_EQ(next_budget(4 * gib, {8 * gib, 4 * gib, 4 * gib, 0, true}), 3 * gib);
}

TEST(PressureBudget, WaitsForWhatIsOnItsWayOut) {
  EXPECT_EQ(next_budget(2 * gib, {8 * gib, 0, 4 * gib, 1, true}), 2 * gib);
}

}  // namespace
}  // namespace far::preload
