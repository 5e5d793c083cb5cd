// A lock for critical sections of some tens of nanoseconds.
//
// The runtime runs inside fault handlers and inside malloc, where a lock must neither allocate nor sleep in a library
// that could itself be waiting for the far heap. The holder may be preempted, so waiters give up the CPU after a while.
#pragma once

#include <atomic>

#include "base/backoff.h"

namespace far {

// Meets the standard Lockable requirements: use it with std::lock_guard and std::unique_lock.
class spin_lock {
 public:
  void lock() noexcept {
    backoff waiting;
    while (!try_lock()) waiting.pause();
  }
  [[nodiscard]] bool try_lock() noexcept {
    return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace far
