#include "fiber/waiter.h"

#include <cerrno>
#include <type_traits>

#include "base/check.h"
#include "base/use_check.h"
#include "fiber/control_block.h"
#include "fiber/scheduler_state.h"
#include "fiber/worker.h"
#include "platform/futex.h"
#include "platform/program_thread.h"
#include "platform/signal_shield.h"

namespace far::fiber {
namespace {

static_assert(std::is_same_v<std::chrono::steady_clock::period, std::nano>);

std::uint64_t to_ns(time_point deadline) noexcept {
  if (deadline == never) return platform::no_deadline_ns;
  const auto count = deadline.time_since_epoch().count();
  return count < 0 ? 0 : static_cast<std::uint64_t>(count);
}

}  // namespace

time_point after(std::chrono::nanoseconds from_now) noexcept {
  const time_point now = std::chrono::steady_clock::now();
  return from_now >= never - now ? never : now + from_now;
}

void wake_up::deliver() const noexcept {
  if (fiber_ != nullptr) fiber_->owner->make_ready(*fiber_);
  if (sleeper_ != nullptr) platform::futex_wake_one(sleeper_);
}

waiter::waiter() noexcept : fiber_(current_fiber()) {}

waiter::~waiter() {
  FAR_DCHECK(!listed_, "a waiter leaves every list before it ends");
  FAR_DCHECK(state_.load(std::memory_order_relaxed) != parked, "a waiter outlives its wait");
}

bool waiter::park_until(time_point deadline) noexcept {
  FAR_CHECK(fiber_ == current_fiber(), "only who created a waiter parks with it");
  return fiber_ != nullptr ? park_fiber_until(deadline) : park_thread_until(deadline);
}

bool waiter::park_fiber_until(time_point deadline) noexcept {
  if (const std::uint32_t already = state_.load(std::memory_order_acquire); already != idle) return already == woken;
  worker& on = *worker::current();
  if (deadline != never) {
    deadline_.at_ns = to_ns(deadline);
    deadline_.expired = &on_deadline;
    deadline_.context = this;
    on.timers.set(deadline_);
    on.shared().note_pending();
  }
  on.park(*fiber_, *this);
  // Perhaps on another worker now. `on` is where the deadline was set.
  if (deadline != never) on.timers.cancel(deadline_);
  return state_.load(std::memory_order_acquire) == woken;
}

bool waiter::park_thread_until(time_point deadline) noexcept {
  FAR_CHECK(worker::current() == nullptr, "pollers run between fibers and must not wait");
  std::uint32_t seen = idle;
  if (!state_.compare_exchange_strong(seen, parked, std::memory_order_acq_rel)) return seen == woken;
  const std::uint64_t deadline_ns = to_ns(deadline);
  while ((seen = state_.load(std::memory_order_acquire)) == parked) {
    if (platform::futex_sleep(state_, parked, deadline_ns)) continue;
    if (state_.compare_exchange_strong(seen, timed_out, std::memory_order_acq_rel)) return false;
  }
  return seen == woken;
}

bool waiter::park_in_fault_handler(time_point deadline) noexcept {
  if (fiber_ == nullptr) return park_until(deadline);
  control_block& self = *fiber_;
  worker& on = *worker::current();
  FAR_CHECK_USE(self.memory.holds(__builtin_frame_address(0)),
                "a fiber must handle faults on its own stack: install the handler without SA_ONSTACK");
  worker* const pinned_before = self.pinned;
  self.pinned = &on;
  const int saved_errno = errno;
  const std::uint64_t signals = platform::block_signals();
  platform::restore_signals(platform::blocked_on_program_threads);
  const bool in_time = park_until(deadline);
  platform::restore_signals(signals);
  errno = saved_errno;
  self.pinned = pinned_before;
  on.counts.fault_parks.add(1);
  return in_time;
}

bool waiter::wake() noexcept {
  wake_up notice;
  if (!finish(woken, notice)) return false;
  notice.deliver();
  return true;
}

bool waiter::finish(std::uint32_t as, wake_up& notice) noexcept {
  // Not to be touched once the state is changed: the waiter may be gone.
  control_block* const fiber = fiber_;
  std::uint32_t seen = state_.load(std::memory_order_relaxed);
  while (seen == idle || seen == parked) {
    if (!state_.compare_exchange_weak(seen, as, std::memory_order_acq_rel, std::memory_order_relaxed)) continue;
    if (seen == parked && fiber != nullptr) notice.fiber_ = fiber;
    if (seen == parked && fiber == nullptr) notice.sleeper_ = &state_;
    return true;
  }
  return false;
}

void waiter::on_deadline(timer& expired) noexcept {
  wake_up notice;
  if (static_cast<waiter*>(expired.context)->finish(timed_out, notice)) notice.deliver();
}

wait_list::~wait_list() {
  FAR_CHECK_USE(first_ == nullptr, "a synchronisation object was destroyed while somebody waits for it");
}

void wait_list::append(waiter& last) noexcept {
  last.listed_ = true;
  last.next_ = nullptr;
  last.previous_ = last_;
  (last_ == nullptr ? first_ : last_->next_) = &last;
  last_ = &last;
  ++size_;
}

void wait_list::remove(waiter& listed) noexcept {
  if (!listed.listed_) return;
  listed.listed_ = false;
  --size_;
  (listed.previous_ == nullptr ? first_ : listed.previous_->next_) = listed.next_;
  (listed.next_ == nullptr ? last_ : listed.next_->previous_) = listed.previous_;
}

bool wait_list::has_any_to_wake() const noexcept {
  for (const waiter* one = first_; one != nullptr; one = one->next_) {
    if (one->state_.load(std::memory_order_relaxed) != waiter::timed_out) return true;
  }
  return false;
}

bool wait_list::claim_first(wake_up& notice) noexcept {
  while (first_ != nullptr) {
    waiter& oldest = *first_;
    remove(oldest);
    if (oldest.claim(notice)) return true;
  }
  return false;
}

}  // namespace far::fiber
