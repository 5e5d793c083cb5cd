#include "preload/pressure_budget.h"

#include <algorithm>

#include "base/units.h"
#include "pager/pager.h"

namespace far::preload {
namespace {

constexpr std::uint64_t largest_reserve = 4 * gib;
// Up to this share of the time, waiting for memory is usual. From the second share on, the job gives back as much as it
// can.
constexpr double usual_stall = 0.05;
constexpr double worst_stall = 0.30;
// Stalls count only when memory is short. Otherwise they are those of a cgroup at its own limit.
constexpr std::uint64_t reserves_without_stalls = 4;
constexpr double largest_give = 0.25;       // of what the job holds, in one step
constexpr std::uint64_t growth = 16;        // the inverse of the part of spare memory
constexpr std::uint64_t slow_growth = 128;  // the same of the reserve, for a job that holds a quarter of all
constexpr std::uint64_t usual_parts = 4;
constexpr std::uint64_t fastest = 8;  // times as much, for a small one

// 0: nothing is wrong; 1: as bad as can be.
double severity(const memory_outlook& now, std::uint64_t reserve) {
  if (now.ran_out) return 1;
  double worst = 0;
  if (now.available_bytes < reserve) {
    worst = static_cast<double>(reserve - now.available_bytes) / static_cast<double>(reserve);
  }
  if (now.available_bytes < reserves_without_stalls * reserve) {
    worst = std::max(worst, (now.stalled - usual_stall) / (worst_stall - usual_stall));
  }
  return std::min(worst, 1.0);
}

// The evictor of a job at its budget keeps some of it free ahead of need.
bool uses_all(std::uint64_t budget, const memory_outlook& now) {
  return now.local_bytes >= budget - budget / 8;
}

std::uint64_t lower(std::uint64_t budget, const memory_outlook& now, double degree) {
  // Memory that the job has to give back already is still on its way out.
  if (now.local_bytes > budget + budget / 16) return budget;
  // Who evicts would otherwise lose what is kept free in each step, and who has all that it needs would lose nothing.
  const std::uint64_t from = uses_all(budget, now) ? budget : now.local_bytes;
  return from - static_cast<std::uint64_t>(static_cast<double>(from) * largest_give * degree);
}

// The step at the border of the reserve. It is in inverse proportion to the job's memory, so that small jobs catch up.
std::uint64_t slow_step(const memory_outlook& now, std::uint64_t reserve) {
  const std::uint64_t usual = std::max<std::uint64_t>(now.usable_bytes / usual_parts, 1);
  const std::uint64_t held = std::max(now.local_bytes, usual / fastest);
  const double times = static_cast<double>(usual) / static_cast<double>(std::max<std::uint64_t>(held, 1));
  return static_cast<std::uint64_t>(static_cast<double>(reserve / slow_growth) * times);
}

std::uint64_t raise(std::uint64_t budget, const memory_outlook& now, std::uint64_t reserve) {
  const std::uint64_t above = now.available_bytes - reserve;
  // An unused budget must not promise more than there is.
  const std::uint64_t most = now.local_bytes + above;
  if (!uses_all(budget, now)) return std::min(budget, most);
  // What a job at its budget keeps free ahead of need is no promise, and must not end the small steps: the reserve has
  // room for it, and only below the reserve do large jobs give back to small ones.
  const std::uint64_t step = slow_step(now, reserve);
  return std::min(budget + (above > reserve ? (above - reserve) / growth : 0) + step, std::max(budget + step, most));
}

}  // namespace

std::uint64_t memory_reserve(std::uint64_t usable_bytes) noexcept {
  return std::clamp(usable_bytes / 8, pager::minimum_budget_bytes, largest_reserve);
}

std::uint64_t next_budget(std::uint64_t budget_bytes, const memory_outlook& now) noexcept {
  const std::uint64_t reserve = memory_reserve(now.usable_bytes);
  const double degree = severity(now, reserve);
  std::uint64_t next = budget_bytes;
  if (degree > 0) {
    next = lower(budget_bytes, now, degree);
  } else if (now.available_bytes >= reserve) {
    next = raise(budget_bytes, now, reserve);
  }
  return std::max(round_down(next, page_bytes), pager::minimum_budget_bytes);
}

}  // namespace far::preload
