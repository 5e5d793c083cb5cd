#include "preload/guests.h"

#include <algorithm>
#include <span>

#include "control/statistics_json.h"
#include "pager/pager.h"
#include "preload/job_shares.h"

namespace far::preload {
namespace {

using engine::statistics;

constexpr std::uint64_t minimum = pager::minimum_budget_bytes;
constexpr std::uint64_t measuring_ns = 150'000'000;  // between two measurements of demand, at least
constexpr std::uint64_t newcomer_ns = 1'000'000'000;

}  // namespace

// Nothing here may fail in a way that a program notices: a guest that is refused runs with a budget of its own. The
// counts of a guest outlive it in `departed_`, or the sums of the process would fall when it leaves. Its frames are
// free again, so they are not kept.
std::uint64_t guests::exchange(std::uint32_t& number, const control::guest_report& said) noexcept {
  if (said.interface != control::guest_interface) return 0;
  const lock_guard held(lock_);
  if (number == 0 && said.runtimes != 0) {
    const auto free = std::find_if(all_.begin(), all_.end(), [](const guest& one) { return one.said.runtimes == 0; });
    if (free == all_.end()) return 0;
    *free = {};
    number = static_cast<std::uint32_t>(free - all_.begin()) + 1;
  }
  if (number == 0 || number > all_.size()) return 0;
  guest& mine = all_[number - 1];
  mine.said = said;
  if (said.runtimes == 0) {
    control::forget_what_is_held(mine.said.counted);
    control::add_statistics(departed_, mine.said.counted);
    mine = {};
    number = 0;
    return 0;
  }
  return std::max(mine.of_budget.granted_bytes, least_of(mine));
}

statistics guests::add_to(statistics own) const noexcept {
  const lock_guard held(lock_);
  control::add_statistics(own, departed_);
  for (const guest& one : all_) {
    if (one.said.runtimes != 0) control::add_statistics(own, one.said.counted);
  }
  return own;
}

void guests::settle_in_child() noexcept {
  lock_.open_in_child();  // another thread of the parent may have held it
  const lock_guard held(lock_);
  all_ = {};
}

std::uint64_t guests::least_of(const guest& one) noexcept {
  return one.said.runtimes * minimum;
}

std::uint64_t guests::most_of(const guest& one) noexcept {
  return std::max(least_of(one), one.said.wanted_bytes);
}

std::uint64_t guests::least_bytes() const noexcept {
  const lock_guard held(lock_);
  std::uint64_t least = minimum;
  for (const guest& one : all_) least += least_of(one);
  return least;
}

// The minima of all runtimes but a guest's first are set aside: with them it counts as a far heap like any other.
std::uint64_t guests::set_aside_for(const guest& one) noexcept {
  return one.said.runtimes == 0 ? 0 : least_of(one) - minimum;
}

job_share guests::share_above(const guest& one, job_share whole) noexcept {
  const std::uint64_t aside = set_aside_for(one);
  const std::uint64_t least = least_of(one);
  whole.used_bytes -= std::min(whole.used_bytes, aside);
  whole.limit_bytes = std::max(whole.limit_bytes, least) - aside;
  if (whole.granted_bytes != 0) whole.granted_bytes = std::max(whole.granted_bytes, least) - aside;
  whole.most_bytes = most_of(one) - aside;
  return whole;
}

// Guests share the budget of the process as the processes of a job share that of the job (divide_budget()). The part
// that is set aside for further runtimes is not divided.
std::uint64_t guests::divide(std::uint64_t budget_bytes, const statistics& own, std::uint64_t now_ns) noexcept {
  const lock_guard held(lock_);
  const std::uint64_t since_ns = now_ns - std::min(now_ns, measured_ns_);
  const bool measures = since_ns >= measuring_ns;
  if (measures) measured_ns_ = now_ns;
  const auto share_of = [&](part& one, const statistics& counted) {
    if (measures) one.demand.measure(need_of(counted), static_cast<double>(since_ns) / 1e9);
    return job_share{.used_bytes = counted.local_bytes,
                     .limit_bytes = counted.budget_bytes,
                     .demand = one.demand.rate,
                     .granted_bytes = one.granted_bytes};
  };
  std::array<job_share, most + 1> shares;
  shares[0] = share_of(own_, own);
  std::size_t count = 1;
  std::uint64_t aside = 0;
  for (guest& one : all_) {
    if (one.said.runtimes == 0) continue;
    if (one.came_ns == 0) one.came_ns = now_ns;
    job_share& share = shares[count++];
    share = share_above(one, share_of(one.of_budget, one.said.counted));
    share.is_new = now_ns - one.came_ns < newcomer_ns;
    aside += set_aside_for(one);
  }
  divide_budget(budget_bytes - std::min(budget_bytes, aside), std::span(shares).first(count));
  count = 0;
  own_.granted_bytes = shares[count++].granted_bytes;
  for (guest& one : all_) {
    if (one.said.runtimes == 0) continue;
    const std::uint64_t granted_bytes = shares[count++].granted_bytes + set_aside_for(one);
    one.of_budget.granted_bytes = std::min(granted_bytes, most_of(one));
  }
  return own_.granted_bytes;
}

}  // namespace far::preload
