// A reader-writer lock for fibers and OS threads, which may be held over misses.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "far/fiber.h"

namespace far::detail {

// For std::lock_guard and std::shared_lock. Writers go first. Not recursive, in either mode.
class shared_lock {
 public:
  void lock() noexcept {
    writers_.lock();
    // Either a reader sees this, or the writer sees the reader.
    is_writing_.store(true, std::memory_order_seq_cst);
    while (readers_.load(std::memory_order_seq_cst) != 0) drained_.acquire();
  }
  void unlock() noexcept {
    is_writing_.store(false, std::memory_order_seq_cst);
    writers_.unlock();
  }
  void lock_shared() noexcept {
    readers_.fetch_add(1, std::memory_order_seq_cst);
    if (!is_writing_.load(std::memory_order_seq_cst)) return;
    unlock_shared();
    const std::lock_guard after_writers(writers_);
    readers_.fetch_add(1, std::memory_order_seq_cst);
  }
  void unlock_shared() noexcept {
    // A permit too many only makes a writer look once more.
    if (readers_.fetch_sub(1, std::memory_order_seq_cst) == 1 && is_writing_.load(std::memory_order_seq_cst)) {
      drained_.release();
    }
  }

 private:
  std::atomic<std::uint32_t> readers_{0};
  std::atomic<bool> is_writing_{false};
  mutex writers_;
  counting_semaphore drained_;
};

}  // namespace far::detail
