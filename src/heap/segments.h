// Segments: the unit the object heap allocates from. 64 pages, aligned to their size, taken from the pager in arenas.
//
//     free ──take──> open ──close──> closed ──last object gone──> free
//
// An open one belongs to a thread's cache or to the evacuator; a closed one to nobody: its objects die, or are
// evacuated, and when none is left it is discarded and free. A segment of runs never closes: it holds huge objects of
// up to 32 pages, found by its map of pages in use.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/spin_lock.h"
#include "heap/far_memory.h"
#include "heap/page_table.h"

namespace far::heap {

inline constexpr std::size_t segment_pages = 64;
inline constexpr std::size_t segment_bytes = segment_pages * page_bytes;

enum class segment_state : std::uint8_t { none, free, open, closed, runs };

struct segment {
  std::atomic<segment_state> state{segment_state::none};
  std::atomic<std::uint32_t> objects{0};  // live ones, and the open segment's holder while it is open
  std::atomic<std::uint32_t> live_units{0};
  // Of a segment of runs, under the lock of the huge space: its map of pages, and whether it is tried for further runs.
  std::uint64_t pages_in_use = 0;
  bool listed = false;
  // Of a slab of plain memory, under the lock of its kind: the tag of the kind.
  std::atomic<std::uint8_t> slab_tag{0};
  std::atomic<std::uint32_t> live_units_left{0};  // how many the evacuator had to leave when it was here last
};

class segments {
 public:
  segments(far_memory& memory, page_table& pages);
  ~segments();
  segments(const segments&) = delete;
  segments& operator=(const segments&) = delete;

  // Takes a free segment, none of whose pages has bytes, for objects of one tag; returns its first address. Throws
  // std::bad_alloc when the far heap's addresses run out.
  [[nodiscard]] std::uintptr_t take(segment_state as, unsigned tag);

  // The thread that opened it allocates no more from it.
  void close(std::uintptr_t first);

  // An object of `units` was placed in an open segment; it died, or moved away.
  void add_object(std::uintptr_t object, std::size_t units);
  void remove_object(std::uintptr_t object, std::size_t units);

  // An object that was added keeps its place and its bytes until let_go_of(), though it be removed meanwhile.
  void keep_object(std::uintptr_t object);
  void let_go_of(std::uintptr_t object) { remove_object(object, 0); }

  // Keeps a segment of small objects from becoming free, and its places from being used again, until let_go(). Returns
  // false when it is free already, and when it is open, unless those are meant, too.
  enum which : std::uint8_t { only_closed, also_open };
  [[nodiscard]] bool keep(segment& one, which meant = only_closed);
  void let_go(std::uintptr_t in) { let_go(in, holding(in)); }

  // Pages, of which none has bytes that matter, are in use without scopes and dereferences from here on.
  void begin_loose_use(std::uintptr_t first, std::size_t count, unsigned tag);

  // Frees a segment of runs, when its last run is gone.
  void release_runs(std::uintptr_t first);

  [[nodiscard]] segment& holding(std::uintptr_t address) { return table_[index_of(address)]; }
  [[nodiscard]] const segment& holding(std::uintptr_t address) const { return table_[index_of(address)]; }
  // Whether it is neither for pages of larger objects nor for plain pointers.
  [[nodiscard]] bool holds_small_objects(std::uintptr_t address) const {
    const segment_state now = holding(address).state.load(std::memory_order_acquire);
    return now == segment_state::closed || now == segment_state::open;
  }
  // Segments 0 to count() - 1 have been used; for the evacuator's search and the validators.
  [[nodiscard]] std::size_t count() const { return used_.load(std::memory_order_acquire); }
  // How many segments became free so far.
  [[nodiscard]] std::uint64_t freed() const { return freed_.load(std::memory_order_relaxed); }
  [[nodiscard]] segment& at(std::size_t index) { return table_[index]; }
  [[nodiscard]] const segment& at(std::size_t index) const { return table_[index]; }
  [[nodiscard]] std::uintptr_t address_of(std::size_t index) const { return base_ + index * segment_bytes; }
  [[nodiscard]] std::size_t index_of(std::uintptr_t address) const { return (address - base_) / segment_bytes; }

 private:
  static constexpr std::size_t arena_bytes = std::size_t{64} << 20;

  void add_arena();
  void let_go(std::uintptr_t object_or_first, segment& emptied);

  far_memory& memory_;
  page_table& pages_;
  std::uintptr_t base_;
  std::size_t most_;
  segment* table_;
  std::atomic<std::size_t> used_{0};
  std::atomic<std::uint64_t> freed_{0};
  spin_lock lock_;
  spin_lock growing_;
  std::size_t segments_ FAR_GUARDED_BY(lock_) = 0;
  std::vector<std::uint32_t> free_ FAR_GUARDED_BY(lock_);
};

}  // namespace far::heap
