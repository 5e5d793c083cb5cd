// A lock for critical sections of some tens of nanoseconds.
//
// The runtime runs inside fault handlers and inside malloc, where a lock must neither allocate nor sleep in a library
// that could itself be waiting for the far heap. The holder may be preempted, so waiters give up the CPU after a while.
#pragma once

#include <atomic>

#include "base/backoff.h"
#include "base/lock_guard.h"
#include "base/thread_annotations.h"

namespace far {

// Meets the standard Lockable requirements: use it with far::lock_guard.
class FAR_CAPABILITY("spin lock") spin_lock {
 public:
  void lock() noexcept FAR_ACQUIRE() {
    backoff waiting;
    while (!try_lock()) waiting.pause();
  }
  [[nodiscard]] bool try_lock() noexcept FAR_TRY_ACQUIRE(true) {
    return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept FAR_RELEASE() { held_.store(false, std::memory_order_release); }

  // In the child of a fork: the thread that held it is not in this process. Returns whether one did.
  bool open_in_child() noexcept { return held_.exchange(false, std::memory_order_acq_rel); }
  // Tells the analysis, where it cannot see it, that the lock is held, or that no other thread can be at work.
  void assert_held() const noexcept FAR_ASSERT_HELD() {}

 private:
  std::atomic<bool> held_{false};
};

}  // namespace far
