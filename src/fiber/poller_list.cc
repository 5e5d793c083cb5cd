#include "fiber/poller_list.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace far::fiber {

unsigned poller_list::add(poller one) {
  for (unsigned i = 0; i < most_pollers; ++i) {
    place& at = places_[i];
    if (at.used.exchange(true)) continue;
    {
      const lock_guard guard(at.lock);
      at.call = std::move(one);
    }
    unsigned seen = in_use_.load();
    while (seen <= i && !in_use_.compare_exchange_weak(seen, i + 1)) continue;
    at.due_ns.store(0);
    return i;
  }
  FAR_CHECK(false, "a scheduler has at most 16 pollers");
}

void poller_list::remove(unsigned number) noexcept {
  place& at = places_[number];
  poller gone;
  {
    const lock_guard guard(at.lock);
    at.due_ns.store(none);
    gone = std::exchange(at.call, nullptr);
  }
  at.used.store(false);
}

void poller_list::soon(unsigned number) noexcept {
  places_[number].due_ns.store(0);
}

unsigned poller_list::serve(std::uint64_t now_ns) noexcept {
  unsigned called = 0;
  const unsigned count = in_use_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i) {
    place& at = places_[i];
    if (at.due_ns.load(std::memory_order_relaxed) > now_ns || !at.lock.try_lock()) continue;
    const lock_guard guard(at.lock, std::adopt_lock);
    if (at.due_ns.load() > now_ns) continue;
    // A call of soon() while it runs is not lost.
    at.due_ns.store(none);
    if (at.call == nullptr) continue;  // it was removed before that call, and is not to keep the workers awake
    const auto again = static_cast<std::uint64_t>(std::max<std::int64_t>(0, at.call().count()));
    std::uint64_t still = none;
    if (again < none / 2 - now_ns) at.due_ns.compare_exchange_strong(still, now_ns + again);
    ++called;
  }
  return called;
}

std::uint64_t poller_list::due_ns() const noexcept {
  std::uint64_t earliest = none;
  const unsigned count = in_use_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i) earliest = std::min(earliest, places_[i].due_ns.load());
  return earliest;
}

}  // namespace far::fiber
