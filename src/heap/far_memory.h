// All that the object heap asks of the pager.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "backend/backend.h"
#include "base/units.h"
#include "engine/eviction_filter.h"
#include "engine/residency.h"
#include "fiber/this_fiber.h"
#include "pager/page_guard.h"

namespace far::heap {

class far_memory {
 public:
  // Requires: the pager outlives it, has been created with an eviction filter, and with a reader for objects.
  explicit far_memory(pager::page_guard& from)
      : from_(from),
        base_(reinterpret_cast<std::uintptr_t>(from.start())),
        state_bytes_(from.state_bytes()),
        pages_(from.pages()) {}

  [[nodiscard]] std::uintptr_t base() const { return base_; }
  [[nodiscard]] std::uint64_t pages() const { return pages_; }
  [[nodiscard]] bool contains(std::uintptr_t address) const { return address - base_ < pages_ << page_shift; }

  // Addresses that have no bytes yet; every page of them comes by fetch(). Throws std::bad_alloc when there are no
  // more.
  [[nodiscard]] std::uintptr_t map(std::size_t bytes, std::size_t alignment_bytes);
  // The end of the addresses that were ever mapped.
  [[nodiscard]] std::uintptr_t end_of_mapped() const { return end_of_mapped_.load(std::memory_order_relaxed); }
  void unmap(std::uintptr_t address, std::size_t bytes);
  // The bytes are not needed any more. The addresses stay.
  void discard(std::uintptr_t address, std::size_t bytes);

  // Asks that the pages of the range lie on the same servers as others of this affinity (backend.h).
  void keep_together(std::uintptr_t address, std::size_t bytes, backend::affinity with) {
    from_.keep_together(pointer(address), bytes, with);
  }

  // The software guard. Claim or hold the page first (page_table.h, hazard_log.h): the evicting thread stores the byte
  // and then looks for that, so this load may not move before it. Acquiring is not enough for that where loads may pass
  // stores.
  [[nodiscard]] bool is_resident(std::uintptr_t address) const {
    return __atomic_load_n(&state_bytes_[(address - base_) >> page_shift], __ATOMIC_SEQ_CST) ==
           engine::residency::byte_of_resident;
  }

  // Whether the page is resident and writes to it do not meet the hardware guard.
  [[nodiscard]] bool is_writable(std::uintptr_t address) const { return from_.is_writable(pointer(address)); }

  // Whether the page is neither resident nor on its way: nobody holds it, and a later holder sees what was changed
  // before this call.
  [[nodiscard]] bool is_away(std::uintptr_t address) const { return from_.is_away(pointer(address)); }

  [[nodiscard]] bool is_untouched(std::uintptr_t address) const { return from_.is_untouched(pointer(address)); }

  // Makes pages resident; waits, and lets other fibers run, as read_remote() does, even if the far tier answers at once
  // (let_others_run). They may be evicted again before it returns. Throws page_lost when the first one is lost; others
  // that are lost are left as they are.
  void fetch(std::uintptr_t address, std::size_t bytes, bool write) {
    if (!try_fetch(address, bytes, write)) throw_lost(address);
  }
  // The same, but returns false.
  [[nodiscard]] bool try_fetch(std::uintptr_t address, std::size_t bytes, bool write) {
    let_others_run();
    return from_.fetch(pointer(address), bytes, write);
  }
  // The same, writable, for something new, which may go elsewhere: it also returns false when the far tier is out of
  // reach, and waits no longer than it takes to find that out.
  [[nodiscard]] bool try_fetch_place(std::uintptr_t address, std::size_t bytes) {
    let_others_run();
    return from_.fetch_place(pointer(address), bytes);
  }
  // Makes the page of a word resident that the heap itself has to read. If it is lost, the process ends, unless the
  // hardware guard's handler gives zeros.
  void fetch_or_end(std::uintptr_t address) {
    if (!try_fetch(address, 1, true)) static_cast<void>(*reinterpret_cast<const volatile std::byte*>(address));
  }
  [[nodiscard]] bool is_lost(std::uintptr_t address) const { return from_.is_lost(pointer(address)); }
  void prefetch(std::uintptr_t address, std::size_t bytes) { from_.prefetch(pointer(address), bytes); }

  // Evicts what can be evicted of the range now, whatever the budget says.
  void evict(std::uintptr_t address, std::size_t bytes) { from_.evict(reinterpret_cast<std::byte*>(address), bytes); }

  // Whether the page is remote, and comes back object by object.
  [[nodiscard]] bool takes_object_path(std::uintptr_t address) const {
    return from_.takes_object_path(pointer(address));
  }

  // Whether the page, which is remote, left a short while ago: its objects are probably needed often.
  [[nodiscard]] bool left_just_now(std::uintptr_t address) const { return from_.left_just_now(pointer(address)); }

  // The slot of a remote page; nothing of any other.
  [[nodiscard]] std::optional<std::uint64_t> slot_of(std::uintptr_t address) const {
    return from_.slot_of(pointer(address));
  }

  // Reads bytes of a remote page into local memory, without making it resident. Returns false when the page is not
  // remote any more, or the far tier fails: look again, on the page path.
  [[nodiscard]] bool read_remote(std::uintptr_t address, std::size_t bytes, std::byte* into) {
    let_others_run();
    return from_.read_slot(pointer(address), bytes, into) == pager::slot_read::done;
  }

  // Has the far tier reduce numbers of remote pages, which stay there (pager::page_guard::reduce_slots).
  void reduce_remote(const reduction& how, std::span<pager::slot_reduction> pages) {
    let_others_run();
    from_.reduce_slots(how, pages);
  }

  // The same about rows (pager::page_guard::reduce_rows).
  void reduce_remote_rows(const reduction& how, std::span<pager::row_reduction> rows) {
    let_others_run();
    from_.reduce_rows(how, rows);
  }

 private:
  // A fiber that never waited would keep its worker. The other fibers of the worker would stay in the scopes in which
  // they wait, so no page would ripen, and all would have to be forced out. One whose last miss waited has let them
  // run.
  static void let_others_run() { fiber::yield_unless_waited(); }
  [[noreturn]] static void throw_lost(std::uintptr_t address);

  std::atomic<bool> says_full_{false};  // that the addresses have run out was said
  [[nodiscard]] static const std::byte* pointer(std::uintptr_t address) {
    return reinterpret_cast<const std::byte*>(address);
  }

  pager::page_guard& from_;
  std::uintptr_t base_;
  const std::uint8_t* state_bytes_;
  std::uint64_t pages_;
  std::atomic<std::uintptr_t> end_of_mapped_{base_};
};

}  // namespace far::heap
