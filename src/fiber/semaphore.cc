#include "fiber/semaphore.h"

namespace far::fiber {

bool semaphore::try_acquire() noexcept {
  const lock_guard guard(list_lock_);
  if (permits_ == 0) return false;
  --permits_;
  return true;
}

bool semaphore::try_acquire_until(time_point deadline) noexcept {
  waiter mine;
  {
    const lock_guard guard(list_lock_);
    if (permits_ > 0) {
      --permits_;
      return true;
    }
    waiting_.append(mine);
  }
  const bool in_time = mine.park_until(deadline);
  // Also if it was in time: the semaphore may be destroyed next, and the other side must have left by then.
  const lock_guard guard(list_lock_);
  waiting_.remove(mine);
  return in_time;
}

void semaphore::release(std::uint64_t permits) noexcept {
  for (; permits > 0; --permits) {
    wake_up notice;
    {
      const lock_guard guard(list_lock_);
      if (!waiting_.claim_first(notice)) {
        permits_ += permits;
        return;
      }
    }
    notice.deliver();
  }
}

}  // namespace far::fiber
