// The far::runtime objects of a process under `farheap run`: they and the run door's own far heap share the budget of
// the process. src/control/guest.h has the calls between the two.
#pragma once

#include <array>
#include <cstdint>

#include "base/spin_lock.h"
#include "control/guest.h"
#include "engine/statistics.h"
#include "preload/job_shares.h"

namespace far::preload {

class guests {
 public:
  // Takes a guest's report, and returns the memory that it may hold; see control::host_exchange. Any thread.
  [[nodiscard]] std::uint64_t exchange(std::uint32_t& number, const control::guest_report& said) noexcept;

  // The counts of the process: `own`, those of the run door's far heap, plus those of all guests, also of guests that
  // have left.
  [[nodiscard]] engine::statistics add_to(engine::statistics own) const noexcept;

  // Divides the budget of the process anew, and returns the part of the run door's far heap. Demands are measured
  // between calls that are a while apart; `now_ns` comes from a monotonic clock. If the working minima of all exceed
  // the budget, so does the sum of the parts. Any thread.
  [[nodiscard]] std::uint64_t divide(std::uint64_t budget_bytes, const engine::statistics& own,
                                     std::uint64_t now_ns) noexcept;

  // The least that the process can be given: the working minima.
  [[nodiscard]] std::uint64_t least_bytes() const noexcept;

  // In a child of fork, on its only thread. It has no far::runtime: they are not for children.
  void settle_in_child() noexcept;

  static constexpr std::size_t most = 8;

 private:
  // One far heap.
  struct part {
    demand_meter demand;
    std::uint64_t granted_bytes = 0;  // 0: it is new
  };
  struct guest {
    control::guest_report said;  // no runtimes: the place is free
    part of_budget;
    std::uint64_t came_ns = 0;
  };

  [[nodiscard]] static std::uint64_t least_of(const guest& one) noexcept;
  [[nodiscard]] static std::uint64_t most_of(const guest& one) noexcept;
  [[nodiscard]] static std::uint64_t set_aside_for(const guest& one) noexcept;
  [[nodiscard]] static job_share share_above(const guest& one, job_share whole) noexcept;

  mutable spin_lock lock_;
  std::array<guest, most> all_ FAR_GUARDED_BY(lock_);
  part own_ FAR_GUARDED_BY(lock_);
  engine::statistics departed_ FAR_GUARDED_BY(lock_);  // the counts of guests that have left
  std::uint64_t measured_ns_ FAR_GUARDED_BY(lock_) = 0;
};

}  // namespace far::preload
