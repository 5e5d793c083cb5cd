// The engine's requests to the kernel, as one narrow interface, so that the same engine also runs on a simulated
// kernel.
//
// The far heap is an array of pages; a page is named by its index. The calls move bytes and change mappings; they know
// nothing of residency states. Every call may be made from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/units.h"

namespace far::platform {

// The index of a page in the far heap.
using page_id = std::uint64_t;

struct page_range {
  page_id first = 0;
  std::size_t count = 0;

  [[nodiscard]] page_id end() const { return first + count; }
};

// How a page is mapped when its bytes come in. A `write_protected` page reports its first write to the guard, which is
// how clean pages are known exactly.
enum class mapping : std::uint8_t { write_protected, writable };

class address_space {
 public:
  virtual ~address_space() = default;

  // Maps `range.count` frames that hold a copy of `source`, and wakes the threads that wait for them. Returns how many
  // pages, from the first, were installed; fewer than asked only when the kernel refuses, and then `error_code` says
  // why (ENOMEM: try again later; EEXIST: the page is mapped; ENOENT: it is not guarded).
  [[nodiscard]] virtual std::size_t install(page_range range, const std::byte* source, mapping how,
                                            int* error_code) = 0;

  // Takes the frames out of the heap: afterwards `staging` holds the newest bytes and an access to the range meets the
  // guard. No write is lost, and a page that a device may still write to is refused. Returns how many pages, from the
  // first, were lifted; the next one cannot be lifted now. Requires: the range is guarded, `staging` came from
  // map_staging and is empty there.
  [[nodiscard]] virtual std::size_t lift(page_range range, std::byte* staging) = 0;

  // As lift, for several ranges one after the other, with one TLB flush where the kernel can. Requires: nobody can
  // write to the pages meanwhile; they may be read, and have bytes, because the program knows nothing of their
  // addresses; `copies` is any memory of the runtime. Returns how many pages, from the first, were lifted.
  [[nodiscard]] virtual std::size_t lift_unused(std::span<const page_range> ranges, std::byte* copies) = 0;

  // The bytes of a mapped page, in place. Requires: as lift_unused.
  [[nodiscard]] virtual const std::byte* unused_bytes(page_id page) = 0;

  // Moves mapped pages to another place in the heap, where they become writable. Requires: both ranges are guarded and
  // nothing is mapped at `to`. Returns how many pages, from the first, were moved; the kernel has no bytes for the
  // next one.
  [[nodiscard]] virtual std::size_t relocate(page_range range, page_id to) = 0;

  // Unmaps pages and frees their frames; several ranges share one TLB flush where the kernel can. Returns how many of
  // the ranges, from the first, were dropped; the next one is refused (locked memory), and its pages before the locked
  // one may be gone.
  [[nodiscard]] virtual std::size_t drop(std::span<const page_range> ranges) = 0;

  // Ends write protection, and wakes the threads that wait to write.
  virtual void allow_write(page_range range) = 0;

  // Wakes accesses that wait for a page that is mapped already.
  virtual void wake(page_range range) = 0;

  // Starts and stops reporting accesses to pages that are not mapped; does nothing where that is so already. Mapped
  // pages stay mapped. The kernel may refuse, for want of mappings; then some of the range may be guarded.
  [[nodiscard]] virtual result<void> guard(page_range range) = 0;
  [[nodiscard]] virtual bool unguard(page_range range) = 0;

  // Sets filled[i] to whether page range.first + i holds bytes (mapped, or swapped out by the kernel).
  virtual void query_filled(page_range range, std::span<bool> filled) = 0;

  // Lets the kernel fill pages that are not guarded, as a first read or write by the program would. Returns 0, or the
  // errno of madvise(2) with MADV_POPULATE_READ or MADV_POPULATE_WRITE; then some of them may be filled.
  [[nodiscard]] virtual int populate(page_range range, bool write) = 0;

  // Memory to lift into. Frames in it are freed, and the place is empty again, after empty_staging.
  [[nodiscard]] virtual std::byte* map_staging(std::size_t pages) = 0;
  virtual void unmap_staging(std::byte* staging, std::size_t pages) = 0;
  virtual void empty_staging(std::byte* staging, std::size_t pages) = 0;

  // In the child of a fork, whose staging holds what it held in the parent: it can be lifted into again. Before the
  // first lift, and after what it holds has been taken out.
  [[nodiscard]] virtual result<void> renew_staging(std::byte* staging, std::size_t pages) = 0;
};

}  // namespace far::platform
