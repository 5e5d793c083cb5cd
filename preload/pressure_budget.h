// The budget of `--local auto`: as much as the machine, or the cgroup, can spare at the moment.
//
// A part of the memory, the reserve, is to stay available to everybody else. Where less is left, or where the kernel
// makes threads wait for memory, the job gives back a part of what it holds: the more, the worse it is. Where more than
// two reserves are left and the job holds nearly all that it may, it grows by a part of that. Between the two it grows
// by a little, those that hold less by more. So several jobs, of which none knows of the others, come to equal parts:
// all shrink in proportion to their size, and large ones do not grow by more than small ones (additive increase,
// multiplicative decrease; Chiu and Jain, Analysis of the Increase and Decrease Algorithms for Congestion Avoidance in
// Computer Networks, 1989, section 3). docs/decisions/0032-automatic-budget.md.
#pragma once

#include <cstdint>

namespace far::preload {

// The observations since the previous decision, a fifth of a second before.
struct memory_outlook {
  std::uint64_t usable_bytes = 0;     // of the machine, or the limit of the cgroup
  std::uint64_t available_bytes = 0;  // of it, without swapping
  std::uint64_t local_bytes = 0;      // held by the job
  double stalled = 0;                 // the share of the time in which some thread waited for memory, 0 to 1
  bool ran_out = false;               // the cgroup could not get memory that it needed
};

// The part of `usable_bytes` that is to stay available.
[[nodiscard]] std::uint64_t memory_reserve(std::uint64_t usable_bytes) noexcept;

// The next budget of the job; in whole pages, and never below the pager's minimum.
[[nodiscard]] std::uint64_t next_budget(std::uint64_t budget_bytes, const memory_outlook& now) noexcept;

}  // namespace far::preload
