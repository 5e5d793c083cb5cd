#include "heap/living_runtimes.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/lock_guard.h"
#include "heap/heap.h"

namespace far::heap {

constinit living_runtimes living;

void living_runtimes::add(runtime& one, const detail::object_heap& objects) {
  const lock_guard guard(lock_);
  for (std::size_t i = 0; i < most; ++i) {
    entry& slot = all_[i];
    if (slot.owner.load(std::memory_order_relaxed) != nullptr) continue;
    slot.base.store(objects.memory.base(), std::memory_order_relaxed);
    slot.end.store(objects.memory.base() + (objects.memory.pages() << page_shift), std::memory_order_relaxed);
    slot.owner.store(&one, std::memory_order_release);
    in_use_.store(std::max(in_use_.load(std::memory_order_relaxed), i + 1), std::memory_order_release);
    return;
  }
  throw std::runtime_error("a process has at most " + std::to_string(most) + " far::runtime objects at a time");
}

void living_runtimes::remove(runtime& one) noexcept {
  const lock_guard guard(lock_);
  for (entry& slot : all_) {
    if (slot.owner.load(std::memory_order_relaxed) == &one) slot.owner.store(nullptr, std::memory_order_release);
  }
  runtime* mine = &one;
  process_wide_.compare_exchange_strong(mine, nullptr);
}

runtime* living_runtimes::find(std::uintptr_t address) const noexcept {
  const std::size_t count = in_use_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    const entry& slot = all_[i];
    runtime* const owner = slot.owner.load(std::memory_order_acquire);
    if (owner != nullptr && address >= slot.base.load(std::memory_order_relaxed) &&
        address < slot.end.load(std::memory_order_relaxed)) {
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
