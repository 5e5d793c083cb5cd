#include "fiber/run_queue.h"

#include <algorithm>

namespace far::fiber {

void run_queue::list::append(control_block& one) noexcept {
  one.next = nullptr;
  (last == nullptr ? first : last->next) = &one;
  last = &one;
  ++count;
}

control_block* run_queue::list::take() noexcept {
  control_block* const taken = first;
  if (taken == nullptr) return nullptr;
  first = taken->next;
  if (first == nullptr) last = nullptr;
  --count;
  return taken;
}

control_block* run_queue::level::take() noexcept {
  const bool from_pinned = anywhere.count == 0 || (pinned_next && pinned.count > 0);
  pinned_next = !from_pinned;
  return (from_pinned ? pinned : anywhere).take();
}

// Under the lock.
void run_queue::note_sizes() noexcept {
  std::size_t anywhere = 0;
  std::size_t pinned = 0;
  for (const level& one : levels_) {
    anywhere += one.anywhere.count;
    pinned += one.pinned.count;
  }
  stealable_.store(anywhere, std::memory_order_relaxed);
  size_.store(anywhere + pinned, std::memory_order_relaxed);
}

std::size_t run_queue::push(control_block& ready) noexcept {
  const lock_guard guard(lock_);
  level& at = levels_[static_cast<std::size_t>(ready.level())];
  (ready.pinned != nullptr ? at.pinned : at.anywhere).append(ready);
  if (ready.pinned == nullptr) stealable_.store(stealable() + 1, std::memory_order_relaxed);
  size_.store(size() + 1, std::memory_order_relaxed);
  return size();
}

// The highest level that has a fiber, unless a lower one was passed over too often.
run_queue::level* run_queue::choose() noexcept {
  level* highest = nullptr;
  level* owed = nullptr;
  for (level& one : levels_) {
    if (one.empty()) continue;
    if (highest == nullptr) {
      highest = &one;
    } else if (++one.passed_over > most_passed_over && owed == nullptr) {
      owed = &one;
    }
  }
  if (owed != nullptr) turns_given_.store(turns_given() + 1, std::memory_order_relaxed);
  level* const chosen = owed != nullptr ? owed : highest;
  if (chosen != nullptr) chosen->passed_over = 0;
  return chosen;
}

control_block* run_queue::pop() noexcept {
  if (size() == 0) return nullptr;
  const lock_guard guard(lock_);
  level* const from = choose();
  if (from == nullptr) return nullptr;
  control_block* const taken = from->take();
  if (taken->pinned == nullptr) stealable_.store(stealable() - 1, std::memory_order_relaxed);
  size_.store(size() - 1, std::memory_order_relaxed);
  pops_.store(pops() + 1, std::memory_order_relaxed);
  return taken;
}

std::size_t run_queue::steal(std::span<control_block*, most_stolen> into) noexcept {
  if (stealable() == 0) return 0;
  const lock_guard guard(lock_);
  for (level& one : levels_) {
    if (one.anywhere.count == 0) continue;
    const std::size_t wanted = std::min((one.anywhere.count + 1) / 2, most_stolen);
    for (std::size_t i = 0; i < wanted; ++i) into[i] = one.anywhere.take();
    note_sizes();
    return wanted;
  }
  return 0;
}

std::size_t run_queue::size_for_sleep() noexcept {
  const lock_guard guard(lock_);
  return size();
}

std::size_t run_queue::stealable_for_sleep() noexcept {
  const lock_guard guard(lock_);
  return stealable();
}

}  // namespace far::fiber
