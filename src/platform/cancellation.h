// Keeps a thread of the program from being cancelled (pthread_cancel(3)) while the runtime works on it
// (docs/decisions/0145-cancelled-threads.md).
#pragma once

#include <pthread.h>

namespace far::platform {

// Many of our calls are cancellation points. A thread that is cancelled in one would unwind the runtime, or wait there
// for ever, because the C library's signal for it is blocked. While one of these lives it is not. Requires: made and
// destroyed by one thread, which no fiber leaves meanwhile.
class uncancelled {
 public:
  uncancelled() noexcept {
    int type = PTHREAD_CANCEL_DEFERRED;
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    is_by_signal_ = type == PTHREAD_CANCEL_ASYNCHRONOUS;
    if (is_by_signal_) {
      pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    } else {
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
    }
  }
  ~uncancelled() {
    if (!is_by_signal_) pthread_setcancelstate(before_, nullptr);
  }
  uncancelled(const uncancelled&) = delete;
  uncancelled& operator=(const uncancelled&) = delete;

 private:
  // It would be cancelled as soon as it may be, in the middle of the runtime. As it is, a signal cancels it, which we
  // hold back like all others. So it is with a thread in a call of the C library that is a cancellation point: before
  // version 2.41 that sets the type around the system call, which the run door serves.
  bool is_by_signal_ = false;
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace far::platform
