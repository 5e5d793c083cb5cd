#include "heap/scope_records.h"

#include <cxxabi.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/lock_guard.h"
#include "base/log.h"
#include "fiber/identity.h"

extern "C" void* __dso_handle;  // of the library or program that this is in

namespace far::heap {
namespace {

struct registry {
  spin_lock lock;
  owner_record* free FAR_GUARDED_BY(lock) = nullptr;
  // What was put off by owners that ended in the middle of destructions. The headers of these objects name the words
  // here.
  std::unique_ptr<destruction> never_destroyed FAR_GUARDED_BY(lock);
  std::atomic<owner_record*> first{nullptr};

  owner_record& take() {
    {
      const lock_guard guard(lock);
      if (free != nullptr) return *std::exchange(free, free->next_free);
    }
    auto* const fresh = new (std::nothrow) owner_record;
    if (fresh == nullptr) throw std::bad_alloc();
    const lock_guard guard(lock);
    fresh->next = first.load(std::memory_order_relaxed);
    first.store(fresh, std::memory_order_release);
    return *fresh;
  }

  void give_back(owner_record& one) {
    FAR_CHECK(one.work.held() == 0, "its owner has finished its work");
    // exit() ends the main thread in the middle of its scopes and destructions.
    if (hazard_log* const used = one.used.load(std::memory_order_relaxed); used != nullptr) used->cut_back(0);
    constexpr std::uint64_t step = detail::scope_record::step;
    const std::uint64_t sequence = one.sequence.load(std::memory_order_relaxed);
    one.sequence.store((sequence + step - 1) / step * step, std::memory_order_release);
    std::unique_ptr<destruction> never = std::exchange(one.put_off, nullptr);
    one.destructions = 0;
    const lock_guard guard(lock);
    while (never != nullptr) {
      std::unique_ptr<destruction> rest = std::move(never->next);
      never->next = std::move(never_destroyed);
      never_destroyed = std::move(never);
      never = std::move(rest);
    }
    one.next_free = free;
    free = &one;
  }
};

registry& all_records() {
  static registry* const only = new registry;  // outlives every thread
  return *only;
}

void give_back_at_end(detail::scope_record* one) {
  all_records().give_back(*static_cast<owner_record*>(one));
}

// An OS thread ends; a fiber's record is returned by its worker. Destructors of thread-local variables may open scopes
// after this: then there is another record, and another call.
void end_thread(void* owner) {
  auto& mine = *static_cast<fiber::identity*>(owner);
  detail::scope_record_here = nullptr;
  if (mine.scopes != nullptr) give_back_at_end(std::exchange(mine.scopes, nullptr));
}

// A destructor cannot pass the exception on: then this is the last thing that the process says.
owner_record& take_or_say_why() {
  try {
    return all_records().take();
  } catch (const std::bad_alloc&) {
    log_line(
        log_level::error,
        "the first use of far pointers by a thread or fiber needs %zu bytes of local memory, and there are none: use "
        "fewer of them, or give the process more memory",
        sizeof(owner_record));
    throw;
  }
}

// Of the calling fiber or thread. Not inlined, so that no address of a thread-local variable is kept while a fiber
// changes workers.
[[gnu::noinline]] void set_record(owner_record* one) noexcept {
  asm volatile("");
  fiber::current_identity().scopes = one;
  detail::scope_record_here = one;
}

[[gnu::noinline]] owner_record& take_record(fiber::identity& owner) {
  owner_record& taken = take_or_say_why();
  owner.scopes = &taken;
  detail::scope_record_here = &taken;
  owner.release_scopes = give_back_at_end;
  // As a thread-local variable with a destructor would, but also while others of them are being destroyed.
  if (!owner.of_fiber) abi::__cxa_thread_atexit(end_thread, &owner, &__dso_handle);
  return taken;
}

// A small hash table from page number to position: hazard logs may hold far more pages than are asked about.
class position_table {
 public:
  explicit position_table(std::span<const std::uint64_t> pages) {
    FAR_CHECK(pages.size() <= 64, "a batch has at most 64 pages");
    for (std::size_t i = 0; i < pages.size(); ++i) {
      std::size_t at = slot_of(pages[i]);
      while (entries_[at].position != 0) at = (at + 1) % slots;
      entries_[at] = {pages[i], static_cast<std::uint8_t>(i + 1)};
    }
  }

  // A bit for the position of this page, or 0.
  [[nodiscard]] std::uint64_t bit_of(std::uint64_t page) const {
    for (std::size_t at = slot_of(page); entries_[at].position != 0; at = (at + 1) % slots) {
      if (entries_[at].page == page) return std::uint64_t{1} << (entries_[at].position - 1);
    }
    return 0;
  }

 private:
  static constexpr std::size_t slots = 256;

  struct entry {
    std::uint64_t page = 0;
    std::uint8_t position = 0;  // from 1
  };

  [[nodiscard]] static std::size_t slot_of(std::uint64_t page) { return page * 0x9e3779b97f4a7c15u >> 56; }

  std::array<entry, slots> entries_{};
};

}  // namespace

void fence_all_threads() noexcept {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
  // The first one in this process must be announced.
  const bool announced = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  FAR_CHECK(announced && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0,
            "the runtime does not start where membarrier(2) is missing");
}

owner_record* first_record() noexcept {
  return all_records().first.load(std::memory_order_acquire);
}

owner_record& current_record() {
  fiber::identity& mine = fiber::current_identity();
  if (mine.scopes != nullptr) [[likely]]
    return *static_cast<owner_record*>(mine.scopes);
  return take_record(mine);
}

borrowed_record::borrowed_record() : one_(&all_records().take()) {}

borrowed_record::~borrowed_record() {
  one_->work.cut_back(0);
  all_records().give_back(*one_);
}

adopted_record::adopted_record(borrowed_record& from) noexcept {
  FAR_CHECK(fiber::current_identity().scopes == nullptr, "who adopts a record has none");
  set_record(from.one_);
}

adopted_record::~adopted_record() {
  set_record(nullptr);
}

held_pages find_held(std::span<const std::uint64_t> pages, const hazard_log* except) noexcept {
  const position_table positions(pages);
  fence_all_threads();
  held_pages held;
  // All scopes first, because a page is handed over from a scope to work that outlasts it.
  for (const owner_record* one = first_record(); one != nullptr; one = one->next) {
    const hazard_log* const used = one->used.load(std::memory_order_acquire);
    if (used == nullptr) continue;
    used->for_each([&](std::uint64_t page) { held.by_scopes |= positions.bit_of(page); });
  }
  for (const owner_record* one = first_record(); one != nullptr; one = one->next) {
    if (&one->work == except) continue;
    one->work.for_each([&](std::uint64_t page) { held.by_work |= positions.bit_of(page); });
  }
  return held;
}

}  // namespace far::heap

namespace far::detail {

scope_record& current_scope_record() {
  return heap::current_record();
}

}  // namespace far::detail
