// The misses of fibers, and their way to wait: the fiber parks, with no lock held, and others run on its thread.
//
// A waiting fiber keeps no state of its thread, because outside the fault handler it may continue on another one. A
// fiber that waits for a page is woken when the page settles. A fiber that waits for a scarce resource is woken by
// poll().
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/fetcher_pool.h"
#include "engine/miss.h"
#include "engine/miss_waiter.h"
#include "engine/waiting_fibers.h"

namespace far::engine {

class parked_misses {
 public:
  parked_misses(engine& with, host& around, const fetcher_pool& fetchers, miss_waiter& fibers);

  // Returns `resolved` or `lost`. Requires: on a fiber.
  [[nodiscard]] miss::state resolve(wanted_page wanted, miss_waiter::place from) noexcept;

  // Parks the calling fiber until the next poll().
  void wait_for_turn(miss_waiter::place from) noexcept { waiting_.wait_for(waiting_fibers::reason::turn, from); }

  // Finishes arrived transfers and wakes the fibers that can continue. Any thread. Returns after how many nanoseconds
  // to call it again, or no_poll.
  [[nodiscard]] std::uint64_t poll() noexcept;

 private:
  void wait(miss& one, miss_waiter::place from) noexcept;
  [[nodiscard]] bool serve_the_scarce() noexcept;

  engine& engine_;
  host& host_;
  const fetcher_pool& fetchers_;
  miss_waiter& fibers_;
  waiting_fibers waiting_;
  std::atomic<std::uint64_t> idle_since_ns_{0};  // when poll() first found nothing; 0: it last found something
};

}  // namespace far::engine
