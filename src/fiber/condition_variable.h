// A condition variable for fibers and OS threads, mixed, with any lock that has lock() and unlock(). No wait ends
// without a notification or its deadline. Must lie in local memory (mutex.h).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "base/spin_lock.h"
#include "fiber/waiter.h"

namespace far::fiber {

class condition_variable {
 public:
  condition_variable() = default;
  // Waits that have been notified, or have come to their deadline, may not have returned yet: it lets them leave.
  ~condition_variable();
  condition_variable(const condition_variable&) = delete;
  condition_variable& operator=(const condition_variable&) = delete;

  // Each unlocks `lock`, which the caller holds, waits, and locks it again. Waits with a deadline return false when it
  // came first; waits with a predicate return its last result.
  template <typename Lock>
  void wait(Lock& lock) {
    static_cast<void>(wait_until(lock, never));
  }
  template <typename Lock, typename Predicate>
  void wait(Lock& lock, Predicate holds) {
    while (!holds()) wait(lock);
  }
  template <typename Lock>
  [[nodiscard]] bool wait_until(Lock& lock, time_point deadline) FAR_UNCHECKED_LOCKING {
    waiter mine;
    begin(mine);
    lock.unlock();
    const bool notified = mine.park_until(deadline);
    finish(mine);
    lock.lock();
    return notified;
  }
  template <typename Lock, typename Predicate>
  [[nodiscard]] bool wait_until(Lock& lock, time_point deadline, Predicate holds) {
    while (!holds()) {
      if (!wait_until(lock, deadline)) return holds();
    }
    return true;
  }
  template <typename Lock, typename... Predicate>
  [[nodiscard]] bool wait_for(Lock& lock, std::chrono::nanoseconds at_most, Predicate... holds) {
    return wait_until(lock, after(at_most), std::move(holds)...);
  }

  // With or without the lock held. Cheap when nobody waits.
  void notify_one() noexcept;
  void notify_all() noexcept;

 private:
  void begin(waiter& mine) noexcept;
  void finish(waiter& mine) noexcept;

  spin_lock list_lock_;
  wait_list waiting_ FAR_GUARDED_BY(list_lock_);
  unsigned inside_ FAR_GUARDED_BY(list_lock_) = 0;  // waits that have begun and not finished
  pid_t process_ FAR_GUARDED_BY(list_lock_) = 0;    // theirs: a child of fork has none of them
  std::atomic<bool> somebody_waits_{false};
};

}  // namespace far::fiber
