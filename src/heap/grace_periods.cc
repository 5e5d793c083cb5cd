#include "heap/grace_periods.h"

#include <thread>

#include "far/detail/grace.h"
#include "fiber/identity.h"
#include "fiber/this_fiber.h"

namespace far::heap {

constinit grace_periods all_scopes;

void grace_periods::advance() noexcept {
  if (!driving_.try_lock()) return;
  const lock_guard guard(driving_, std::adopt_lock);
  if (under_way_ != 0) drop_ended();
  if (under_way_ == 0) begin();
}

// Whatever was taken away under a number up to this one is out of reach before the fence; so whoever can have reached
// it has opened a scope before the fence, too, and is seen (tests/model/grace_eviction_model_test.cc).
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
    one->sequence_then = one->sequence.load(std::memory_order_acquire);
    if (one->sequence_then % 2 == 0) continue;
    one->next_open_then = open_then_;
    open_then_ = one;
  }
  drop_ended();
}

void grace_periods::drop_ended() noexcept {
  owner_record** link = &open_then_;
  while (*link != nullptr) {
    owner_record& one = **link;
    if (one.sequence.load(std::memory_order_acquire) == one.sequence_then) {
      link = &one.next_open_then;
    } else {
      *link = one.next_open_then;
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
  const bool on_fiber = fiber::current_identity().of_fiber;
  while (true) {
    advance();
    if (is_over(number)) return true;
    if (current_record().is_open() || clock::now() >= deadline) return false;
    if (on_fiber) {
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
