// Deadlines of one worker's fibers: a pairing heap whose nodes lie in the waiters, so that setting one allocates
// nothing. Fredman, Sedgewick, Sleator, Tarjan, "The pairing heap", 1986.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/spin_lock.h"

namespace far::fiber {

class timer_heap;

struct timer {
  std::uint64_t at_ns = 0;  // CLOCK_MONOTONIC
  // Called when the time has come, under the heap's lock, once.
  void (*expired)(timer& self) noexcept = nullptr;
  void* context = nullptr;  // for `expired`

  // The heap's own.
  timer_heap* in = nullptr;
  std::uint64_t sequence = 0;  // of equal deadlines, the older first
  timer* child = nullptr;
  timer* sibling = nullptr;
  timer* before = nullptr;  // the parent, or the sibling before it
};

// Thread-safe.
class timer_heap {
 public:
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  timer_heap() = default;
  timer_heap(const timer_heap&) = delete;
  timer_heap& operator=(const timer_heap&) = delete;

  // Requires: not set; at_ns and expired say when and what.
  void set(timer& one) noexcept;

  // When this returns, `one` is not in the heap and its `expired` does not run any more.
  void cancel(timer& one) noexcept;

  // Calls `expired` of all that are due, earliest first. Returns how many.
  unsigned expire(std::uint64_t now_ns) noexcept;

  // The earliest deadline, or `none`. A hint, without the lock.
  [[nodiscard]] std::uint64_t earliest_ns() const noexcept { return earliest_ns_.load(std::memory_order_relaxed); }
  // With the lock: a deadline that was set before is seen; and a thread that sets one after sees what the caller wrote
  // before.
  [[nodiscard]] std::uint64_t earliest_for_sleep() noexcept;

 private:
  [[nodiscard]] static timer* meld(timer* a, timer* b) noexcept;
  [[nodiscard]] static timer* meld_siblings(timer* first) noexcept;
  void remove(timer& one) noexcept FAR_REQUIRES(lock_);
  void note_earliest() noexcept FAR_REQUIRES(lock_) {
    earliest_ns_.store(root_ == nullptr ? none : root_->at_ns, std::memory_order_relaxed);
  }

  spin_lock lock_;
  timer* root_ FAR_GUARDED_BY(lock_) = nullptr;
  std::uint64_t next_sequence_ FAR_GUARDED_BY(lock_) = 0;
  std::atomic<std::uint64_t> earliest_ns_{none};
};

}  // namespace far::fiber
