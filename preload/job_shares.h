// How the budget of a job is divided among its processes. No shared memory, no clock, no system call: numbers in,
// numbers out. docs/decisions/0023-a-process-tree-is-one-job.md says why it is so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/statistics.h"

namespace far::preload {

// Pages that somebody waited for, or that were filled while others had to leave.
[[nodiscard]] std::uint64_t need_of(const engine::statistics& counted) noexcept;

// The demand of a job_share, over the last few measurements.
struct demand_meter {
  std::uint64_t seen = 0;
  double rate = 0;  // a second

  void measure(std::uint64_t need, double seconds) noexcept {
    const std::uint64_t more = need - std::min(need, seen);
    seen = need;
    rate = (rate * 3 + static_cast<double>(more) / seconds) / 4;
  }
};

// One process of a job, or one far heap of a process.
struct job_share {
  std::uint64_t used_bytes = 0;   // frames charged, now
  std::uint64_t limit_bytes = 0;  // the budget that the process applies, which may still be that of an earlier decision
  double demand = 0;              // pages a second that it missed, or filled while it evicted others; smoothed
  bool idle = false;              // it has used hardly any CPU time lately
  bool is_new = false;            // it has just come
  std::uint64_t most_bytes = ~std::uint64_t{0};  // it takes no more; at least pager::minimum_budget_bytes

  // In: the grant before; 0: none yet. Out: the grant from now on, at least pager::minimum_budget_bytes. A process that
  // holds more comes down to it by eviction.
  std::uint64_t granted_bytes = 0;
};

// The most that the process may hold before it learns of a decision that grants it `granted_bytes`. A small one counts
// with little more than it uses.
[[nodiscard]] std::uint64_t most_held(const job_share& one, std::uint64_t granted_bytes) noexcept;

// Decides anew. Memory that processes hold already, or may still take before they learn of the decision, is never
// granted to others. So together they stay within `budget_bytes`, except for the working minimum, which every process
// has. Small processes count with the memory that they use.
void divide_budget(std::uint64_t budget_bytes, std::span<job_share> among) noexcept;

}  // namespace far::preload
