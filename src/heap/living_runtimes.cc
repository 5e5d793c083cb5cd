#include "heap/living_runtimes.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/lock_guard.h"
#include "heap/heap.h"

namespace far::heap {

constinit living_runtimes living;

namespace {

// Runtimes that are never destroyed use it until the process has ended.
union never_destroyed {
  fiber::mutex one;
  constexpr never_destroyed() : one() {}
  ~never_destroyed() {}
};

constinit never_destroyed moves;

}  // namespace

constinit fiber::mutex& all_moves = moves.one;

void living_runtimes::add(runtime& one, const detail::object_heap& objects) {
  const lock_guard guard(lock_);
  for (std::size_t i = 0; i < most; ++i) {
    entry& slot = all_[i];
    if (slot.owner.load(std::memory_order_relaxed) != nullptr) continue;
    slot.changes.fetch_add(1, std::memory_order_acq_rel);
    slot.base.store(objects.memory.base(), std::memory_order_release);
    slot.end.store(objects.memory.base() + (objects.memory.pages() << page_shift), std::memory_order_release);
    slot.owner.store(&one, std::memory_order_release);
    in_use_.store(std::max(in_use_.load(std::memory_order_relaxed), i + 1), std::memory_order_release);
    return;
  }
  throw std::runtime_error("a process has at most " + std::to_string(most) + " far::runtime objects at a time");
}

void living_runtimes::remove(runtime& one) noexcept {
  const lock_guard nothing_moves(all_moves);
  const lock_guard guard(lock_);
  for (entry& slot : all_) {
    if (slot.owner.load(std::memory_order_relaxed) != &one) continue;
    // What an abandoned object owned is never destroyed, and its header goes on naming the word there.
    if (detail::heap_of(one).count.abandoned_objects.load() > 0) note_left(slot.base.load(), slot.end.load());
    slot.owner.store(nullptr, std::memory_order_release);
  }
  runtime* mine = &one;
  process_wide_.compare_exchange_strong(mine, nullptr);
}

void living_runtimes::note_left(std::uintptr_t base, std::uintptr_t end) noexcept {
  for (range& one : left_) {
    const std::uintptr_t base_before = one.base.load(std::memory_order_relaxed);
    const std::uintptr_t end_before = one.end.load(std::memory_order_relaxed);
    const bool is_unused = end_before == 0;
    const bool overlaps = base < end_before && base_before < end;
    if (!is_unused && !overlaps && &one != &left_.back()) continue;
    one.base.store(is_unused ? base : std::min(base, base_before), std::memory_order_relaxed);
    one.end.store(std::max(end, end_before), std::memory_order_relaxed);
    return;
  }
}

bool living_runtimes::was_left(std::uintptr_t address) const noexcept {
  return std::any_of(left_.begin(), left_.end(), [&](const range& one) {
    return address >= one.base.load(std::memory_order_relaxed) && address < one.end.load(std::memory_order_relaxed);
  });
}

runtime* living_runtimes::find(std::uintptr_t address) const noexcept {
  const std::size_t count = in_use_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    const entry& slot = all_[i];
    const std::uint64_t changes = slot.changes.load(std::memory_order_acquire);
    runtime* const owner = slot.owner.load(std::memory_order_acquire);
    // Unless the entry has changed meanwhile, the bounds are those of this one.
    if (owner != nullptr && address >= slot.base.load(std::memory_order_acquire) &&
        address < slot.end.load(std::memory_order_acquire) && slot.changes.load(std::memory_order_relaxed) == changes) {
      return owner;
    }
  }
  return nullptr;
}

bool living_runtimes::make_process_wide(runtime& one) noexcept {
  runtime* none = nullptr;
  return process_wide_.compare_exchange_strong(none, &one);
}

detail::object_heap* heap_at(std::uintptr_t address) noexcept {
  runtime* const home = living.find(address);
  return home == nullptr ? nullptr : &detail::heap_of(*home);
}

}  // namespace far::heap
