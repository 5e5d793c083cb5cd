// std::mutex for Clang's analysis of locks: the standard library's is not annotated. For threads that may sleep in the
// C library; code on the way of a miss uses spin_lock instead. far::mutex is another: the public one, for fibers
// (include/far/fiber.h).
#pragma once

#include <mutex>

#include "base/lock_guard.h"
#include "base/thread_annotations.h"

namespace far {

// Use it with far::lock_guard, and to wait with std::condition_variable_any, which takes the mutex itself.
class FAR_CAPABILITY("mutex") thread_mutex {
 public:
  void lock() FAR_ACQUIRE() { held_.lock(); }
  [[nodiscard]] bool try_lock() FAR_TRY_ACQUIRE(true) { return held_.try_lock(); }
  void unlock() FAR_RELEASE() { held_.unlock(); }
  // Tells the analysis, where it cannot see it, that the caller holds the mutex.
  void assert_held() const noexcept FAR_ASSERT_HELD() {}

 private:
  std::mutex held_;
};

}  // namespace far
