#include "heap/grace_periods.h"

#include <thread>

#include "far/detail/grace.h"
#include "fiber/identity.h"
#include "fiber/this_fiber.h"
#include "heap/scope_log.h"

namespace far::heap {

constinit grace_periods all_scopes(scopes_waited_for::all);
constinit grace_periods scopes_without_log(scopes_waited_for::without_log);

void grace_periods::advance(bool may_begin) noexcept {
  if (!driving_.try_lock()) return;
  const lock_guard guard(driving_, std::adopt_lock);
  if (under_way_ != 0) drop_ended();
  if (under_way_ == 0 && may_begin) begin();
  if (under_way_ != 0 && kind_ == scopes_waited_for::without_log) note_long_scopes();
}

bool grace_periods::waits_for(std::uint64_t sequence) const noexcept {
  if ((sequence & owner_record::open) == 0) return false;
  return kind_ == scopes_waited_for::all || (sequence & owner_record::logs) == 0;
}

void grace_periods::note_long_scopes() noexcept {
  if (std::chrono::steady_clock::now() - began_ < longest_short_scope) return;
  for (owner_record* one = open_then_; one != nullptr; one = mark_of(*one).next_open_then) note_long_scope(*one);
}

// Anything that was taken away under a number up to this one is out of reach before the fence. So a thread that can
// have reached it has opened a scope before the fence, too, and is seen (tests/model/grace_eviction_model_test.cc).
void grace_periods::begin() noexcept {
  {
    const lock_guard guard(numbers_);
    if (!wanted_) return;
    wanted_ = false;
    under_way_ = next_;
    if (++next_ == 0) next_ = 1;
  }
  fence_all_threads();
  open_then_ = nullptr;
  for (owner_record* one = first_record(); one != nullptr; one = one->next) {
    const std::uint64_t sequence = one->sequence.load(std::memory_order_acquire);
    if (!waits_for(sequence)) continue;
    mark_of(*one) = {sequence, open_then_};
    open_then_ = one;
  }
  drop_ended();
  if (under_way_ != 0) began_ = std::chrono::steady_clock::now();
}

// A scope that begins or stops to log is still the same.
void grace_periods::drop_ended() noexcept {
  owner_record** link = &open_then_;
  while (*link != nullptr) {
    owner_record::period_mark& mark = mark_of(**link);
    const std::uint64_t changed = (*link)->sequence.load(std::memory_order_acquire) ^ mark.sequence_then;
    if ((changed & ~owner_record::logs) == 0) {
      link = &mark.next_open_then;
    } else {
      *link = mark.next_open_then;
    }
  }
  if (open_then_ != nullptr) return;
  over_.store(under_way_, std::memory_order_release);
  under_way_ = 0;
}

bool grace_periods::wait_until_over(grace_number number, std::chrono::microseconds at_most) noexcept {
  using clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds pause{20};
  const clock::time_point deadline = clock::now() + at_most;
  const fiber::identity& caller = fiber::current_identity();
  while (true) {
    advance();
    if (is_over(number)) return true;
    // A caller without a record has no scope open.
    const detail::scope_record* const mine = caller.scopes;
    if (mine != nullptr && waits_for(mine->sequence.load(std::memory_order_relaxed))) return false;
    if (clock::now() >= deadline) return false;
    if (caller.of_fiber) {
      fiber::sleep_for(pause);
    } else {
      std::this_thread::sleep_for(pause);
    }
  }
}

}  // namespace far::heap

namespace far::detail {

std::uint32_t note_out_of_reach() noexcept {
  return heap::all_scopes.stamp([](heap::grace_number) { return true; });
}

bool have_scopes_ended(std::uint32_t since) noexcept {
  if (heap::all_scopes.is_over(since)) return true;
  heap::all_scopes.advance();
  return heap::all_scopes.is_over(since);
}

}  // namespace far::detail
