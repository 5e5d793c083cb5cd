// Ranges of the far heap as the program allocates and frees them, block by block.
#pragma once

#include "engine/core.h"

namespace far::engine {

// Pages of the range become the program's: zeros until written. Opens blocks while the budget has room for them,
// guards them otherwise. `guarded`: guard them whatever the budget says. Requires: not allocated.
[[nodiscard]] result<void> allocate_range(core& shared, page_range range, bool guarded);

// Whole blocks of memory that the kernel may have filled in part are the program's from now on. Requires: not
// allocated.
[[nodiscard]] result<void> adopt_range(core& shared, page_range range);

// The part of a block is no longer the program's. Requires: allocated, discarded (engine::discard), and not locked in
// memory. Returns false, and frees nothing, while somebody is at work on a page of it.
[[nodiscard]] bool release_part(core& shared, block_id which, page_range part);

// The part becomes Foreign: the program maps something else there. Requires: not allocated. Returns false, to be called
// again, while somebody is at work on a page of it.
[[nodiscard]] bool hand_over_part(core& shared, block_id which, page_range part);

// Guards what of a block is ours. Requires: the block's lock is held. On failure nothing of it is guarded that was not.
[[nodiscard]] result<void> guard_block(core& shared, block_id which);

// Forgets the bytes of a page of a guarded block. begin_discard does so, or claims the page for finish_discard and sets
// `unmap`; it returns false while somebody else is at work on the page. finish_discard takes a range of claimed pages;
// those that are locked in memory stay Resident.
[[nodiscard]] bool begin_discard(core& shared, page_id page, bool* unmap);
void finish_discard(core& shared, page_range range);

// Drops the frame of one page that the caller has claimed. Returns false when it is locked in memory and keeps its
// bytes.
[[nodiscard]] bool drop_page(core& shared, page_id page);

// From open to guarded: finds out which pages the kernel has filled, and offers them to the policy as the next victims.
// Requires: the block's lock is held and it is open. Returns false when the kernel refuses; a warning says why.
[[nodiscard]] bool close_block(core& shared, block_id which);

// Calls `visit(page_range)` for each run of pages that are Foreign, or that are not. Requires: the lock of the block
// that holds the range.
template <typename Visit>
void for_each_run(const core& shared, page_range range, bool foreign, Visit visit) {
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
