// Ranges of the far heap as the program allocates, frees and forgets them, block by block.
#pragma once

#include "engine/core.h"
#include "engine/page_mover.h"
#include "engine/transfer_queues.h"

namespace far::engine {

class page_ranges {
 public:
  page_ranges(core_for_ranges& shared, transfer_queues& transfers)
      : shared_(shared), transfers_(transfers), mover_(shared, transfers) {}

  // Pages of the range become the program's: zeros until written. Opens blocks while the budget has room for them,
  // guards them otherwise. Requires: not allocated.
  [[nodiscard]] result<void> allocate(page_range range) { return allocate(range, false); }
  // Guards them regardless of the budget, so that move() may go there; guard_source() is for where it comes from.
  [[nodiscard]] result<void> allocate_guarded(page_range range) { return allocate(range, true); }
  // Takes over memory that the kernel has filled in part: it is the program's already. Requires: whole blocks, fresh.
  [[nodiscard]] result<void> adopt(page_range range);

  // The range is no longer the program's. Requires: allocated, and not locked in memory.
  void release(page_range range);
  // Releases an allocated range if no page of it has bytes. Requires: the program cannot touch it meanwhile.
  [[nodiscard]] bool release_if_empty(page_range range);

  // The program forgets the bytes of a range.
  void discard(page_range range);
  // The pages should lie on the same servers as others of this affinity, from the next time on that they leave.
  void keep_together(page_range range, backend::affinity with) { shared_.affinities.set(range, with); }
  // Whether blocks can be guarded at all: not in a child that may not open a userfaultfd.
  [[nodiscard]] bool can_guard() const { return shared_.serves_misses(); }
  // As in page_mover.
  [[nodiscard]] result<void> guard_source(page_range from) { return mover_.guard_source(from); }
  void move(page_range from, page_id to) { mover_.move(from, to); }
  // Lets the kernel fill the pages if their block is open, as address_space::populate() does; returns whether it is.
  // Requires: within one block.
  [[nodiscard]] bool populate_open(page_range part, bool write, int* error_code);

  // The range becomes Foreign, until it is allocated again: the program maps something else there. Requires: not
  // allocated.
  void hand_over(page_range range);

 private:
  [[nodiscard]] result<void> allocate(page_range range, bool guarded);
  [[nodiscard]] result<void> allocate_part(block_id id, page_range part, bool guarded);
  [[nodiscard]] result<void> take_back(page_range part, bool guarded);
  [[nodiscard]] bool release_part(block_id id, page_range part);
  [[nodiscard]] bool hand_over_part(block_id id, page_range part);
  [[nodiscard]] bool forget_part(page_range part);
  void discard_guarded(page_range range);

  core_for_ranges& shared_;
  transfer_queues& transfers_;
  page_mover mover_;
};

}  // namespace far::engine
