// A mutex for fibers and OS threads, mixed. Meets the standard's TimedLockable requirements.
//
// unlock() hands it to the fiber that has waited longest, so none starves. Must lie in local memory, like everything in
// this folder that others wait on: a miss while it is being changed could wait for the fiber that waits for it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/spin_lock.h"
#include "fiber/waiter.h"

namespace far::fiber {

class FAR_CAPABILITY("fiber mutex") mutex {
 public:
  mutex() = default;
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  void lock() noexcept FAR_ACQUIRE() {
    if (!try_lock()) static_cast<void>(wait_for_it(never));
  }
  [[nodiscard]] bool try_lock() noexcept FAR_TRY_ACQUIRE(true) {
    std::uint32_t expected = free;
    return state_.compare_exchange_strong(expected, locked, std::memory_order_acquire, std::memory_order_relaxed);
  }
  // Return false when the deadline came first.
  [[nodiscard]] bool try_lock_until(time_point deadline) noexcept FAR_TRY_ACQUIRE(true) {
    return try_lock() || wait_for_it(deadline);
  }
  [[nodiscard]] bool try_lock_for(std::chrono::nanoseconds at_most) noexcept FAR_TRY_ACQUIRE(true) {
    return try_lock_until(after(at_most));
  }

  // Requires: the caller locked it (perhaps on another worker).
  void unlock() noexcept FAR_RELEASE() {
    std::uint32_t expected = locked;
    if (state_.compare_exchange_strong(expected, free, std::memory_order_release, std::memory_order_relaxed)) return;
    hand_over();
  }
  // For the analysis, where it cannot see it: the caller holds the mutex.
  void assert_held() const noexcept FAR_ASSERT_HELD() {}

 private:
  static constexpr std::uint32_t free = 0;
  static constexpr std::uint32_t locked = 1;
  static constexpr std::uint32_t contended = 3;  // locked, and the list may hold somebody

  // Not checked: this is the lock itself.
  [[nodiscard]] bool wait_for_it(time_point deadline) noexcept FAR_UNCHECKED_LOCKING;
  void hand_over() noexcept;

  std::atomic<std::uint32_t> state_{free};
  spin_lock list_lock_;
  wait_list waiting_ FAR_GUARDED_BY(list_lock_);
};

}  // namespace far::fiber
