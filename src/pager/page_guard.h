// The pager's interface for software guards. A software guard checks a byte to find out whether an access would miss,
// and fetches without a hardware fault. All of this works from fibers and OS threads; on a fiber, others run while it
// waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "backend/backend.h"
#include "base/page_reduction.h"
#include "base/result.h"
#include "engine/hint.h"
#include "engine/miss_waiter.h"
#include "pager/far_heap.h"

namespace far::pager {

using engine::hint;
using engine::no_poll;  // a result of page_guard::poll()

// The outcome of page_guard::read_slot().
enum class slot_read {
  done,        // the bytes are in the buffer, and were the newest when the read ended
  not_remote,  // the page is not Remote, or was not for a moment: look again
  failed,      // the far tier keeps failing; fetch() finds out whether the bytes are lost
};

// The outcome of page_guard::find_copy().
enum class copy_lookup {
  found,       // the bytes are there, and were the newest at a moment during the call
  none,        // bring_copy() may help
  unsuitable,  // access the page itself: it is not remote, not readable or part of a walk, or there are no such copies
};

// Numbers in one page, and what has become of a question about them.
struct slot_reduction {
  const std::byte* address = nullptr;
  std::size_t bytes = 0;
  slot_read outcome = slot_read::not_remote;
  const std::uint8_t* groups = nullptr;  // if the question has groups: those of the numbers
  // Room for answer_bytes() in local memory, aligned to 8. If `done`: about the newest bytes when it ended.
  std::byte* answer = nullptr;
};

// The pages of some rows, those of all columns in turn, and what has become of a question about them.
struct row_reduction {
  std::span<const std::byte* const> pages = {};
  slot_read outcome = slot_read::not_remote;
  std::byte* answer = nullptr;  // as of slot_reduction
};

class page_guard : public far_heap {
 public:
  // Like map(), readable and writable, for memory that is filled by fetch() and never by the kernel behind our back, so
  // that its state bytes tell the truth from the beginning.
  [[nodiscard]] virtual result<std::byte*> map_guarded(std::size_t bytes, std::size_t alignment_bytes) = 0;

  // Asks that the pages of the range lie on the same servers as others of this affinity once they have left.
  virtual void keep_together(const std::byte* address, std::size_t bytes, backend::affinity with) = 0;

  // The bytes of software guards, one a page from start(); engine/residency.h says exactly when they change. A page is
  // resident when its byte is engine::residency::byte_of_resident; another value means: find out, by fetch(). Read them
  // as atomics (__atomic_load_n).
  [[nodiscard]] virtual const std::uint8_t* state_bytes() const = 0;

  // The same bytes by address: [address >> 12] for each address below 2^47, 0 outside the far heap. Null unless it was
  // requested and there is room (engine/residency.h).
  [[nodiscard]] virtual const std::uint8_t* states_by_number() const { return nullptr; }

  // A word that is 0 until a page is evicted for the first time: until then there is nothing to prefetch.
  [[nodiscard]] virtual const std::uint64_t* has_evicted() const = 0;

  // Makes the range resident, and writable if `write`; of a longer range, everything is on its way before the first
  // page is waited for. A page may be evicted again at once: look again in the protocol that keeps it. Where the
  // program has more memory than it used so far, the kernel fills the page at the access itself; then there is nothing
  // to do. Returns false when the first page is lost; others that are lost are left as they are.
  [[nodiscard]] virtual bool fetch(const std::byte* address, std::size_t bytes, bool write) = 0;
  // The same, writable, of pages with room for something new. Does not wait for a far tier that is out of reach: then
  // it also returns false, and the page may come another time.
  [[nodiscard]] virtual bool fetch_place(const std::byte* address, std::size_t bytes) = 0;
  // Whether the far tier has failed to return the bytes of a page, for good. It stays so until it is discarded.
  [[nodiscard]] virtual bool is_lost(const std::byte* address) const = 0;

  // The hinted path: the range will be used. Makes up to 64 pages of it resident and marks them as used, unless a scan
  // passes by; the rest is read ahead. A prefetch only starts to fetch missing pages. Lost pages are left to the
  // hardware guard. Returns whether any page was missing (for a prefetch: whether a fetch was started). May be called
  // about any address of the far heap.
  virtual bool expect_use(const std::byte* address, std::size_t bytes, const hint& about) noexcept = 0;
  // The marks that it sets, one a page, and the time that they carry: engine/reference_marks.h.
  [[nodiscard]] virtual const std::uint8_t* use_bytes() const = 0;
  [[nodiscard]] virtual const std::uint8_t* use_time() const = 0;

  // Starts to fetch the remote pages of the range, as long as frames are free ahead of need; does not wait. When none
  // are free it first evicts a batch.
  virtual void prefetch(const std::byte* address, std::size_t bytes) = 0;

  // Whether frames run out faster than they are freed: then fibers that use them up should let others run.
  [[nodiscard]] virtual bool under_pressure() const = 0;

  // Whether the page is resident, and a write to it does not fault.
  [[nodiscard]] virtual bool is_writable(const std::byte* address) const = 0;

  // Whether the page is neither resident nor on its way in or out. One that is on its way out may come back at once, so
  // a state byte that does not say "resident" does not say this.
  [[nodiscard]] virtual bool is_away(const std::byte* address) const = 0;

  // The slot of a remote page; nothing of any other. Neighbouring slots are mostly in one server.
  [[nodiscard]] virtual std::optional<std::uint64_t> slot_of(const std::byte* address) const = 0;

  // Whether the page has no bytes yet, or none any more: there is nothing to fetch.
  [[nodiscard]] virtual bool is_untouched(const std::byte* address) const = 0;

  // Whether the page left a short while ago: since then, an eighth of the budget has been evicted, or a quarter at
  // most.
  [[nodiscard]] virtual bool left_just_now(const std::byte* address) const = 0;

  // Whether the page is remote, and its path selector says that it comes back object by object.
  [[nodiscard]] virtual bool takes_object_path(const std::byte* address) const = 0;

  // Reads bytes of one remote page from the far tier without making the page resident (engine/object_reader.h). Several
  // such reads of a page may run at once, and others may fetch, discard or move it meanwhile. Requires: the range lies
  // within a page; `buffer` is local memory; options::object_readers > 0.
  [[nodiscard]] virtual slot_read read_slot(const std::byte* address, std::size_t bytes, std::byte* buffer) = 0;

  // Whether copies of parts of remote pages are kept (options::copied_bytes, object_copies.h).
  [[nodiscard]] virtual bool keeps_copies() const noexcept { return false; }
  // Reads up to 8 bytes from such a copy, if there is one. Takes no lock; a handler may interrupt it, and jump out.
  [[nodiscard]] virtual copy_lookup find_copy(const std::byte* /*address*/, std::size_t /*bytes*/,
                                              std::byte* /*to*/) noexcept {
    return copy_lookup::unsuitable;
  }
  // Where it has found none: reads them from the far tier, and keeps a copy of the part of the page around them. False
  // where the page is better accessed itself, because others of its parts were read before. `to`: local memory.
  [[nodiscard]] virtual bool bring_copy(const std::byte* /*address*/, std::size_t /*bytes*/,
                                        std::byte* /*to*/) noexcept {
    return false;
  }
  // Makes such copies for all of the addresses, side by side, or has the pages that are better accessed themselves on
  // their way. Returns how many were missing. The list is in local memory.
  virtual std::size_t make_copies(std::span<const std::byte* const> /*addresses*/) noexcept { return 0; }

  // Has the far tier answer a question about remote pages, all of them side by side (base/page_reduction.h). `failed`:
  // it cannot, or not now. Requires: as read_slot(); at most most_reductions pages; each part begins and ends at a
  // number.
  static constexpr std::size_t most_reductions = 16;
  virtual void reduce_slots(const reduction& how, std::span<slot_reduction> pages) = 0;
  // The same about rows, whose pages are in one server. Requires: at most most_reductions questions.
  virtual void reduce_rows(const reduction& how, std::span<row_reduction> rows) = 0;

  // With options::fibers: finishes what has arrived and wakes whom it can; never waits, touches no far memory. Returns
  // after how many nanoseconds it wants the next call. One thread at a time, outside fibers.
  [[nodiscard]] virtual std::uint64_t poll() noexcept = 0;
};

}  // namespace far::pager
