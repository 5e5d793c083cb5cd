// Keeps a thread of the program from being cancelled (pthread_cancel(3)) while the runtime works on it
// (docs/decisions/0145-cancelled-threads.md).
#pragma once

#include <pthread.h>

namespace far::platform {

// Whether pthread_cancel() ends the calling thread by a signal, wherever it is (PTHREAD_CANCEL_ASYNCHRONOUS). The
// runtime holds that signal back as it does all others. The preload library notes it.
inline constinit thread_local bool is_cancelled_by_signal = false;

// Many of our calls are cancellation points. A thread that is cancelled in one would unwind the runtime, or wait there
// for ever, because the C library's signal for it is blocked. While one of these lives it is not. Requires: made and
// destroyed by one thread, which no fiber leaves meanwhile.
class uncancelled {
 public:
  uncancelled() noexcept {
    if (!is_cancelled_by_signal) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
  }
  // Of a thread that is cancelled by a signal this would act at once, in the middle of the runtime.
  ~uncancelled() {
    if (!is_cancelled_by_signal) pthread_setcancelstate(before_, nullptr);
  }
  uncancelled(const uncancelled&) = delete;
  uncancelled& operator=(const uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace far::platform
