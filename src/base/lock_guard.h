// std::lock_guard for Clang's analysis of locks: the standard library's is not annotated.
#pragma once

#include <mutex>

#include "base/thread_annotations.h"

namespace far {

template <typename Lock>
class FAR_SCOPED_CAPABILITY lock_guard {
 public:
  explicit lock_guard(Lock& lock) FAR_ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  // The caller holds it already.
  lock_guard(Lock& lock, std::adopt_lock_t) FAR_REQUIRES(lock) : lock_(lock) {}
  ~lock_guard() FAR_RELEASE() { lock_.unlock(); }
  lock_guard(const lock_guard&) = delete;
  lock_guard& operator=(const lock_guard&) = delete;

 private:
  Lock& lock_;
};

}  // namespace far
