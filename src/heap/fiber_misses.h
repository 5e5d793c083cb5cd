// Lets fibers wait for the pager: implements engine::miss_waiter with the scheduler. A fiber that misses, by a hardware
// fault or in a call of the pager, parks, and the scheduler's workers poll the pager (docs/fiber-waits.md).
//
//     far::fiber::scheduler workers;
//     far::heap::fiber_misses misses(workers);
//     chosen.fibers = &misses;
//     auto pager = far::pager::create_page_guard(chosen);
//     misses.serve(**pager);
//     ...
//     misses.stop();  // then the pager may go
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/miss_waiter.h"
#include "fiber/scheduler.h"
#include "pager/page_guard.h"

namespace far::heap {

class fiber_misses final : public engine::miss_waiter {
 public:
  // Requires: `workers` outlives it.
  explicit fiber_misses(fiber::scheduler& workers) : workers_(workers) {}
  ~fiber_misses() { stop(); }
  fiber_misses(const fiber_misses&) = delete;
  fiber_misses& operator=(const fiber_misses&) = delete;

  // From now on the workers poll `served`, which was made with this in its options; before a fiber touches its far
  // heap.
  void serve(pager::page_guard& served);
  // Ends that. Requires: no fiber waits, or will.
  void stop() noexcept;

  // How many fibers wait for the pager now, and the most that ever waited at once.
  [[nodiscard]] std::uint64_t parked() const noexcept { return parked_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t most_parked() const noexcept { return most_parked_.load(std::memory_order_relaxed); }

  [[nodiscard]] bool on_fiber() const noexcept override;
  [[nodiscard]] engine::read_ahead_state& streams() noexcept override;
  void open(ticket& mine) noexcept override;
  void park(ticket& mine, place from) noexcept override;
  void close(ticket& mine) noexcept override;
  void wake(ticket& one) noexcept override;
  void poll_soon() noexcept override;

 private:
  static constexpr unsigned none = ~0u;

  fiber::scheduler& workers_;
  std::atomic<unsigned> poller_{none};
  std::atomic<std::uint64_t> parked_{0};
  std::atomic<std::uint64_t> most_parked_{0};
};

}  // namespace far::heap
