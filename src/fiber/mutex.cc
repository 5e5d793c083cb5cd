#include "fiber/mutex.h"

#include "base/check.h"
#include "fiber/this_fiber.h"

namespace far::fiber {

bool mutex::wait_for_it(time_point deadline) noexcept {
  // An OS thread sleeps in the kernel, which is worth a little patience.
  for (unsigned i = 0; i < 32 && !on_fiber(); ++i) {
    if (try_lock()) return true;
    cpu_relax();
  }
  waiter mine;
  {
    const lock_guard guard(list_lock_);
    std::uint32_t seen = state_.load(std::memory_order_relaxed);
    while (seen != contended) {
      const std::uint32_t wanted = seen == free ? locked : contended;
      if (!state_.compare_exchange_weak(seen, wanted, std::memory_order_acquire, std::memory_order_relaxed)) continue;
      if (wanted == locked) return true;
      break;
    }
    waiting_.append(mine);
  }
  const bool handed_over = mine.park_until(deadline);
  // Also if we have got it: the mutex may be destroyed as soon as we unlock it, and the other side must have left by
  // then.
  const lock_guard guard(list_lock_);
  waiting_.remove(mine);
  return handed_over;
}

void mutex::hand_over() noexcept {
  wake_up next;
  bool is_claimed = false;
  while (!is_claimed) {
    {
      const lock_guard guard(list_lock_);
      FAR_DCHECK(state_.load() == contended, "only a locked mutex is unlocked");
      is_claimed = waiting_.claim_first(next);
      if (!is_claimed || waiting_.empty()) state_.store(locked, std::memory_order_relaxed);
    }
    // Who gets a free mutex may destroy it at once: the list's lock has been left before.
    std::uint32_t expected = locked;
    if (!is_claimed && state_.compare_exchange_strong(expected, free, std::memory_order_release)) return;
  }
  next.deliver();
}

}  // namespace far::fiber
