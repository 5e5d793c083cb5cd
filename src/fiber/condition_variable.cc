#include "fiber/condition_variable.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/use_check.h"
#include "fiber/this_fiber.h"

namespace far::fiber {

condition_variable::~condition_variable() {
  while (true) {
    {
      const lock_guard guard(list_lock_);
      FAR_CHECK_USE(!waiting_.has_any_to_wake(), "a condition variable was destroyed while somebody waits for it");
      if (inside_ == 0 || process_ != getpid()) return;
    }
    yield();  // they need a processor, and nothing else
  }
}

void condition_variable::begin(waiter& mine) noexcept {
  const lock_guard guard(list_lock_);
  waiting_.append(mine);
  if (process_ != getpid()) inside_ = 0;
  process_ = getpid();
  ++inside_;
  somebody_waits_.store(true, std::memory_order_relaxed);
}

void condition_variable::finish(waiter& mine) noexcept {
  const lock_guard guard(list_lock_);
  waiting_.remove(mine);
  somebody_waits_.store(!waiting_.empty(), std::memory_order_relaxed);
  --inside_;
}

void condition_variable::notify_one() noexcept {
  // A waiter that matters announced itself before it released the lock, which we hold or have held since.
  if (!somebody_waits_.load(std::memory_order_relaxed)) return;
  wake_up notice;
  {
    const lock_guard guard(list_lock_);
    static_cast<void>(waiting_.claim_first(notice));
    somebody_waits_.store(!waiting_.empty(), std::memory_order_relaxed);
  }
  notice.deliver();
}

void condition_variable::notify_all() noexcept {
  if (!somebody_waits_.load(std::memory_order_relaxed)) return;
  constexpr std::size_t batch = 16;
  // Only those that wait now: a fiber that comes back to wait again meanwhile is not notified again.
  std::size_t left = 0;
  {
    const lock_guard guard(list_lock_);
    left = waiting_.size();
  }
  while (left > 0) {
    std::array<wake_up, batch> wake_ups;
    std::size_t claimed = 0;
    {
      const lock_guard guard(list_lock_);
      while (claimed < std::min(batch, left) && waiting_.claim_first(wake_ups[claimed])) ++claimed;
      somebody_waits_.store(!waiting_.empty(), std::memory_order_relaxed);
    }
    for (std::size_t i = 0; i < claimed; ++i) wake_ups[i].deliver();
    if (claimed < batch) return;
    left -= claimed;
  }
}

}  // namespace far::fiber
