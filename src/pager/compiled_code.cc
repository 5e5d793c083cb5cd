#include "pager/compiled_code.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "base/lock_guard.h"
#include "base/spin_lock.h"
#include "engine/residency.h"
#include "pager/page_guard.h"
#include "platform/signal_shield.h"

namespace far::pager {
namespace {

spin_lock listing;
far_compiled* joined FAR_GUARDED_BY(listing) = nullptr;
const std::uint8_t* states FAR_GUARDED_BY(listing) = nullptr;
const std::uint64_t* has_evicted FAR_GUARDED_BY(listing) = nullptr;  // set: a pager serves

std::atomic<page_guard*> serving{nullptr};

// The table comes first. That is not enough for code that runs meanwhile: compilers load the table and the mask once
// for a whole function (compiler/emit.cc), in any order, and a guard with the mask and the table before would look
// beyond the end of that table, of one byte.
void tell(far_compiled& code, bool may_run) FAR_REQUIRES(listing) {
  if (has_evicted == nullptr) return;
  if (states != nullptr && !may_run) {
    __atomic_store_n(&code.states, states, __ATOMIC_RELAXED);
    __atomic_store_n(&code.mask, engine::residency::last_number, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&code.has_evicted, has_evicted, __ATOMIC_RELAXED);
}

}  // namespace

void serve_compiled_code(page_guard& guard, bool others_run) {
  serving.store(&guard, std::memory_order_release);
  const platform::signal_shield shield;
  const lock_guard held(listing);
  has_evicted = guard.has_evicted();
  states = guard.states_by_number();
  for (far_compiled* code = joined; code != nullptr; code = code->next) tell(*code, others_run);
}

void join_compiled_code(far_compiled& joining) {
  const platform::signal_shield shield;
  const lock_guard held(listing);
  joining.next = joined;
  joined = &joining;
  tell(joining, false);
}

void leave_compiled_code(const far_compiled& leaving) {
  const platform::signal_shield shield;
  const lock_guard held(listing);
  for (far_compiled** link = &joined; *link != nullptr; link = &(*link)->next) {
    if (*link != &leaving) continue;
    *link = leaving.next;
    return;
  }
}

bool keeps_objects() {
  page_guard* const guard = serving.load(std::memory_order_acquire);
  return guard != nullptr && guard->keeps_copies();
}

copy_lookup find_object(std::uint64_t& value, const void* address, std::size_t bytes) {
  page_guard* const guard = serving.load(std::memory_order_acquire);
  if (guard == nullptr) return copy_lookup::unsuitable;
  return guard->find_copy(static_cast<const std::byte*>(address), bytes, reinterpret_cast<std::byte*>(&value));
}

bool bring_object(std::uint64_t& value, const void* address, std::size_t bytes) {
  page_guard* const guard = serving.load(std::memory_order_acquire);
  return guard != nullptr &&
         guard->bring_copy(static_cast<const std::byte*>(address), bytes, reinterpret_cast<std::byte*>(&value));
}

std::size_t copy_objects(std::span<const void* const> addresses) {
  page_guard* const guard = serving.load(std::memory_order_acquire);
  if (guard == nullptr) return 0;
  std::array<const std::byte*, far_compiled_most_copies> wanted;
  const std::size_t count = std::min(addresses.size(), wanted.size());
  for (std::size_t i = 0; i < count; ++i) wanted[i] = static_cast<const std::byte*>(addresses[i]);
  return guard->make_copies(std::span(wanted).first(count));
}

void lock_compiled_code_for_fork() FAR_UNCHECKED_LOCKING {
  listing.lock();
}

void unlock_compiled_code_after_fork() FAR_UNCHECKED_LOCKING {
  listing.unlock();
}

}  // namespace far::pager
