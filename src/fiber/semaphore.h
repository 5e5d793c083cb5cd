// A counting semaphore for fibers and OS threads, mixed; those that have waited longest are served first. Must lie in
// local memory (mutex.h).
#pragma once

#include <chrono>
#include <cstdint>

#include "base/spin_lock.h"
#include "fiber/waiter.h"

namespace far::fiber {

class semaphore {
 public:
  explicit semaphore(std::uint64_t permits = 0) noexcept : permits_(permits) {}
  semaphore(const semaphore&) = delete;
  semaphore& operator=(const semaphore&) = delete;

  void acquire() noexcept { static_cast<void>(try_acquire_until(never)); }
  [[nodiscard]] bool try_acquire() noexcept;
  // Return false when the deadline came first.
  [[nodiscard]] bool try_acquire_until(time_point deadline) noexcept;
  [[nodiscard]] bool try_acquire_for(std::chrono::nanoseconds at_most) noexcept {
    return try_acquire_until(after(at_most));
  }

  // Any thread; also inside a fault handler. The thread that acquired the last permit may destroy the semaphore.
  void release(std::uint64_t permits = 1) noexcept;

 private:
  spin_lock list_lock_;
  std::uint64_t permits_ FAR_GUARDED_BY(list_lock_);
  wait_list waiting_ FAR_GUARDED_BY(list_lock_);
};

}  // namespace far::fiber
