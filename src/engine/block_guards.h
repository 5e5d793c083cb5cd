// Guarding blocks: from then on every access to a page of the block that is not mapped is reported. See block.h.
#pragma once

#include "engine/core.h"

namespace far::engine {

// Guards the pages of a block that are not Foreign. Requires: the block's lock is held. A failure leaves at most some
// of them guarded (block::partly_guarded).
[[nodiscard]] result<void> guard_block(core_for_ranges& shared, block_id id);

// Ends that, as far as the kernel can. Requires: the block's lock is held, and no page of it has bytes.
void unguard_block(core_for_ranges& shared, block_id id);

// Where an open block is still guarded, nobody but us fills the pages. Everywhere else this does nothing. Requires: the
// block's lock is held.
void fill_guarded(core_for_ranges& shared, page_range part);

// Guards either the Foreign pages of a part or the others; on failure, none, if the kernel can undo it. Requires: the
// block's lock is held.
[[nodiscard]] result<void> guard_part(core_for_ranges& shared, page_range part, bool foreign);

// From open to guarded: finds out which pages the kernel has filled, and offers them to the policy as the next victims.
// Requires: the block's lock is held and it is open. Returns false when the kernel refuses; a warning says why.
[[nodiscard]] bool close_block(core_for_ranges& shared, block_id id);

// Calls `visit(page_range)` for each run of pages that are Foreign, or that are not. Requires: the lock of the block
// that holds the range.
template <typename Visit>
void for_each_run(const core_for_ranges& shared, page_range range, bool foreign, Visit visit) {
  page_range run{range.first, 0};
  for (page_id page = range.first; page < range.end(); ++page) {
    if ((shared.pages.load(page).where() == state::foreign) == foreign) {
      ++run.count;
      continue;
    }
    if (run.count > 0) visit(run);
    run = {page + 1, 0};
  }
  if (run.count > 0) visit(run);
}

// Calls `visit(block_id, page_range)` for the part of the range in each block.
template <typename Visit>
void for_each_block(page_range range, Visit visit) {
  page_id page = range.first;
  while (page < range.end()) {
    const page_id block_end = pages_of(block_of(page)).end();
    const page_id end = range.end() < block_end ? range.end() : block_end;
    visit(block_of(page), page_range{page, static_cast<std::size_t>(end - page)});
    page = end;
  }
}

}  // namespace far::engine
