#include "heap/hazard_logs.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/spin_lock.h"
#include "far/scope.h"
#include "fiber/identity.h"

namespace far::heap {
namespace {

// Hazard logs are never destroyed: evictors walk them without a lock.
struct registry {
  static constexpr std::size_t most = std::size_t{1} << 20;

  struct link {
    hazard_log one;
    link* next = nullptr;
  };

  spin_lock lock;
  hazard_log* free FAR_GUARDED_BY(lock) = nullptr;
  std::atomic<link*> first{nullptr};

  hazard_log& take() {
    {
      const lock_guard guard(lock);
      if (free != nullptr) {
        hazard_log& taken = *free;
        free = taken.next_free;
        return taken;
      }
    }
    auto* const fresh = new link;
    const lock_guard guard(lock);
    fresh->next = first.load(std::memory_order_relaxed);
    first.store(fresh, std::memory_order_release);
    return fresh->one;
  }

  void give_back(hazard_log& one) {
    FAR_CHECK(one.held() == 0, "whoever ends has closed its scopes");
    const lock_guard guard(lock);
    one.next_free = free;
    free = &one;
  }
};

registry& all_hazard_logs() {
  static registry* const only = new registry;  // outlives every thread
  return *only;
}

void give_back_at_end(void* one) {
  all_hazard_logs().give_back(*static_cast<hazard_log*>(one));
}

// Returns the hazard log of an OS thread that ends. A fiber's is returned by its identity.
struct thread_end {
  fiber::identity* owner = nullptr;
  ~thread_end() {
    detail::hazard_log_here = nullptr;
    if (owner == nullptr || owner->heap_hazard_log == nullptr) return;
    owner->held_pages = nullptr;
    give_back_at_end(std::exchange(owner->heap_hazard_log, nullptr));
  }
};
thread_local thread_end at_thread_end;

constinit std::atomic<std::uint64_t> handed_over{0};

[[gnu::noinline]] hazard_log& first_hazard_log(fiber::identity& owner) {
  hazard_log& taken = all_hazard_logs().take();
  owner.heap_hazard_log = &taken;
  owner.held_pages = &taken.held_count();
  detail::hazard_log_here = &taken;
  owner.release_heap_hazard_log = give_back_at_end;
  if (!owner.of_fiber) at_thread_end.owner = &owner;
  return taken;
}

}  // namespace

void fence_all_threads() noexcept {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
  // The first one in this process must be announced.
  const bool announced = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  FAR_CHECK(announced && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0,
            "the runtime does not start where membarrier(2) is missing");
}

void for_each_hazard_log(void (*seen)(const hazard_log& one, void* context), void* context) noexcept {
  for (const registry::link* link = all_hazard_logs().first.load(std::memory_order_acquire); link != nullptr;
       link = link->next) {
    seen(link->one, context);
  }
}

void note_handed_over() noexcept {
  handed_over.fetch_add(1, std::memory_order_seq_cst);
}

std::uint64_t count_handed_over() noexcept {
  return handed_over.load(std::memory_order_seq_cst);
}

borrowed_hazard_log::borrowed_hazard_log() : one_(&all_hazard_logs().take()) {
  one_->begin_work();
}

borrowed_hazard_log::~borrowed_hazard_log() {
  one_->cut_back(0);
  one_->end_work();
  all_hazard_logs().give_back(*one_);
}

}  // namespace far::heap

namespace far::detail {

hazard_log& current_hazard_log() noexcept {
  fiber::identity& mine = fiber::current_identity();
  if (mine.heap_hazard_log != nullptr) [[likely]]
    return *static_cast<hazard_log*>(mine.heap_hazard_log);
  return heap::first_hazard_log(mine);
}

}  // namespace far::detail
