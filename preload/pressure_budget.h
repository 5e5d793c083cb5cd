// The budget of `--local auto`: as much as the machine, or the cgroup, can spare at the moment.
//
// A part of the memory, the reserve, stays available to everybody else. When less is left, or when threads wait for
// memory, the job gives back a part of its memory, a larger one the shorter memory is. When more than two reserves are
// left and the job uses nearly all of its budget, it grows by a part of the surplus. Between the two it grows a little,
// small jobs more than large ones. So jobs that do not know of each other reach equal parts: all shrink in proportion
// to their size, and large ones do not grow by more than small ones (additive increase, multiplicative decrease; Chiu
// and Jain, Analysis of the Increase and Decrease Algorithms for Congestion Avoidance in Computer Networks, 1989,
// section 3). docs/decisions/0032-automatic-budget.md.
#pragma once

#include <cstdint>

namespace far::preload {

// The observations since the previous decision, a fifth of a second before.
struct memory_outlook {
  std::uint64_t usable_bytes = 0;     // of the machine, or the limit of the cgroup
  std::uint64_t available_bytes = 0;  // of it, without swapping
  std::uint64_t local_bytes = 0;      // held by the job
  double stalled = 0;                 // the share of the time in which a thread waited for memory, 0 to 1
  bool ran_out = false;               // the cgroup could not get memory that it needed
};

// The part of `usable_bytes` that must stay available.
[[nodiscard]] std::uint64_t memory_reserve(std::uint64_t usable_bytes) noexcept;

// The next budget of the job; in whole pages, and never below the pager's minimum.
[[nodiscard]] std::uint64_t next_budget(std::uint64_t budget_bytes, const memory_outlook& now) noexcept;

}  // namespace far::preload
