#include "heap/records.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/spin_lock.h"
#include "far/scope.h"
#include "fiber/identity.h"

namespace far::heap {
namespace {

// Records are never destroyed: evictors walk them without a lock.
struct registry {
  static constexpr std::size_t most = std::size_t{1} << 20;

  struct link {
    record one;
    link* next = nullptr;
  };

  spin_lock lock;
  record* free = nullptr;
  std::atomic<link*> first{nullptr};

  record& take() {
    {
      const std::lock_guard guard(lock);
      if (free != nullptr) {
        record& taken = *free;
        free = taken.next_free;
        return taken;
      }
    }
    auto* const fresh = new link;
    const std::lock_guard guard(lock);
    fresh->next = first.load(std::memory_order_relaxed);
    first.store(fresh, std::memory_order_release);
    return fresh->one;
  }

  void give_back(record& one) {
    FAR_CHECK(one.held() == 0, "whoever ends has closed its scopes");
    const std::lock_guard guard(lock);
    one.next_free = free;
    free = &one;
  }
};

registry& all_records() {
  static registry* const only = new registry;  // outlives every thread
  return *only;
}

void give_back_at_end(void* one) {
  all_records().give_back(*static_cast<record*>(one));
}

// Returns the record of an OS thread that ends. A fiber's is returned by its identity.
struct thread_end {
  fiber::identity* of = nullptr;
  ~thread_end() {
    detail::record_here = nullptr;
    if (of == nullptr || of->heap_record == nullptr) return;
    of->held_pages = nullptr;
    give_back_at_end(std::exchange(of->heap_record, nullptr));
  }
};
thread_local thread_end at_thread_end;

constinit std::atomic<std::uint64_t> handed_over{0};

[[gnu::noinline]] record& first_record(fiber::identity& of) {
  record& taken = all_records().take();
  of.heap_record = &taken;
  of.held_pages = &taken.held_count();
  detail::record_here = &taken;
  of.release_heap_record = give_back_at_end;
  if (!of.of_fiber) at_thread_end.of = &of;
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

void for_each_record(void (*seen)(const record& one, void* context), void* context) noexcept {
  for (const registry::link* each = all_records().first.load(std::memory_order_acquire); each != nullptr;
       each = each->next) {
    seen(each->one, context);
  }
}

void note_handed_over() noexcept {
  handed_over.fetch_add(1, std::memory_order_seq_cst);
}

std::uint64_t count_handed_over() noexcept {
  return handed_over.load(std::memory_order_seq_cst);
}

borrowed_record::borrowed_record() : one_(&all_records().take()) {
  one_->begin_work();
}

borrowed_record::~borrowed_record() {
  one_->cut_back(0);
  one_->end_work();
  all_records().give_back(*one_);
}

}  // namespace far::heap

namespace far::detail {

record& current_record() noexcept {
  fiber::identity& mine = fiber::current_identity();
  if (mine.heap_record != nullptr) [[likely]]
    return *static_cast<record*>(mine.heap_record);
  return heap::first_record(mine);
}

}  // namespace far::detail
