// The fibers that wait for the pager.
//
// A fiber that waits for a page is woken by the change of the page's state that ends the wait. A worker that polls,
// another fiber, an OS thread or the evictor may make this change. The poller wakes fibers that wait for a scarce
// resource, as many as it suffices for.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/spin_lock.h"
#include "engine/miss_waiter.h"
#include "engine/residency.h"

namespace far::engine {

class waiting_fibers final : public settling_listener {
 public:
  enum class reason : std::uint8_t {
    frame,   // none is free: one must be evicted
    flight,  // every fetcher is full
    turn,    // another thread is at work: look again soon
  };
  static constexpr std::size_t reasons = 3;

  explicit waiting_fibers(miss_waiter& fibers) : fibers_(fibers) {}

  // Parks the calling fiber until the page is not Fetching. It may be Fetching again, or Remote, when this returns.
  void wait_for_page(const residency& pages, page_id page, miss_waiter::place from) noexcept;

  // Parks the calling fiber until wake().
  void wait_for(reason why, miss_waiter::place from) noexcept;

  // Wakes at most `most` of the fibers that wait for this, in order of arrival.
  void wake(reason why, std::size_t most) noexcept;
  [[nodiscard]] bool any(reason why) const noexcept {
    return queues_[static_cast<std::size_t>(why)].count.load(std::memory_order_relaxed) > 0;
  }

  void settled(page_id page) noexcept override;

 private:
  static constexpr std::size_t bucket_count = 256;

  struct waiting {
    miss_waiter::ticket ticket;
    page_id page = 0;
    waiting* next = nullptr;
    bool listed = false;
  };

  // The fibers that wait for pages with the same remainder.
  struct bucket {
    spin_lock lock;
    std::atomic<waiting*> first{nullptr};
  };

  struct queue {
    spin_lock lock;
    waiting* first = nullptr;
    waiting* last FAR_GUARDED_BY(lock) = nullptr;
    std::atomic<std::size_t> count{0};
  };

  void put(bucket& in, waiting& mine) noexcept;
  [[nodiscard]] static bool take_back(bucket& from, waiting& mine) noexcept;

  miss_waiter& fibers_;
  std::array<bucket, bucket_count> buckets_;
  std::array<queue, reasons> queues_;
};

}  // namespace far::engine
