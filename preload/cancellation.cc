// What the program says about how its threads may be cancelled. The runtime is not cancelled while it works on them
// (platform/cancellation.h).
#include "platform/cancellation.h"

#include <pthread.h>

#include "far/detail/api.h"
#include "preload/next_function.h"

extern "C" FAR_API int pthread_setcanceltype(int type, int* before) {
  const int failure = far::preload::next<"pthread_setcanceltype", int (*)(int, int*)>()(type, before);
  if (failure == 0) far::platform::is_cancelled_by_signal = type == PTHREAD_CANCEL_ASYNCHRONOUS;
  return failure;
}
