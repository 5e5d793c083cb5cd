// std::mutex for Clang's analysis of locks, which cannot see through the standard library's; for threads that may sleep
// in the C library. Everything that a miss passes through uses spin_lock instead.
#pragma once

#include <mutex>

#include "base/lock_guard.h"
#include "base/thread_annotations.h"

namespace far {

// Use it with far::lock_guard, and to wait with std::condition_variable_any, which takes the mutex itself.
class FAR_CAPABILITY("mutex") mutex {
 public:
  void lock() FAR_ACQUIRE() { held_.lock(); }
  [[nodiscard]] bool try_lock() FAR_TRY_ACQUIRE(true) { return held_.try_lock(); }
  void unlock() FAR_RELEASE() { held_.unlock(); }
  // For the analysis, where it cannot see it: the caller holds the mutex.
  void assert_held() const noexcept FAR_ASSERT_HELD() {}

 private:
  std::mutex held_;
};

}  // namespace far
