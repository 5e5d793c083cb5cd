#include "engine/page_ranges.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/lock_guard.h"
#include "engine/block_guards.h"
#include "engine/page_discard.h"

namespace far::engine {

// ---- what the program allocates ----

result<void> page_ranges::allocate(page_range range, bool guarded) {
  result<void> outcome;
  page_range done{range.first, 0};
  for_each_block(range, [&](block_id id, page_range part) {
    if (!outcome) return;
    outcome = allocate_part(id, part, guarded);
    if (outcome) done.count += part.count;
  });
  if (outcome) return outcome;
  for_each_block(done, [&](block_id id, page_range part) {
    // Nothing was touched yet, except by a late miss, and the evictor may be at work on that.
    backoff waiting;
    while (!release_part(id, part)) waiting.pause();
  });
  return outcome;
}

result<void> page_ranges::adopt(page_range range) {
  result<void> outcome;
  for_each_block(range, [&](block_id id, page_range part) {
    if (!outcome) return;
    FAR_CHECK(part.count == block_pages, "only whole blocks are adopted");
    block& target = shared_.blocks.at(id);
    shared_.blocks.note_use(id);
    const lock_guard guard(target.lock);
    const bool fits = shared_.local.try_charge(part.count, shared_.local.high_watermark_pages());
    if (!fits) shared_.local.charge(part.count);  // until the block is closed, which counts what it has
    target.kind = block_kind::open;
    target.allocated_pages = block_pages;
    if (fits) {
      shared_.admit(part.first, temperature::warm);
    } else if (!close_block(shared_, id)) {
      outcome = error{"the kernel refuses to guard memory that is to become far", 0};
    }
  });
  return outcome;
}

// Decides whether a fresh block is open or guarded, and whether an open one must be closed for the new pages
// (docs/decisions/0002-open-and-guarded-blocks.md).
result<void> page_ranges::allocate_part(block_id id, page_range part, bool guarded) {
  block& target = shared_.blocks.at(id);
  shared_.blocks.note_use(id);
  const lock_guard guard(target.lock);
  const result<void> back = take_back(part, target.kind == block_kind::guarded);
  if (!back) return back;
  const std::uint64_t reserve = shared_.local.high_watermark_pages();
  const auto charge = [this, part, reserve] { return shared_.local.try_charge(part.count, reserve); };
  // A block that cannot be guarded stays the kernel's: the budget is exceeded, and nobody is refused memory.
  const auto charge_anyway = [this, part](const error& why) {
    shared_.note_refused_guard(why);
    shared_.local.charge(part.count);
    shared_.allow_excess();
  };
  if (target.kind == block_kind::fresh) {
    const bool opens = !guarded && charge();
    const result<void> done = opens ? result<void>() : guard_block(shared_, id);
    if (!done && guarded) return done;
    if (!done) charge_anyway(done.error());
    target.kind = opens || !done ? block_kind::open : block_kind::guarded;
    if (target.kind == block_kind::open) shared_.admit(pages_of(id).first, temperature::warm);
  } else if (target.kind == block_kind::open && (guarded || !charge()) && !close_block(shared_, id)) {
    const error why{"the kernel refuses to guard more of the far heap; raise vm.max_map_count", ENOMEM};
    if (guarded) return why;
    charge_anyway(why);
  }
  target.allocated_pages = static_cast<std::uint16_t>(target.allocated_pages + part.count);
  FAR_CHECK(target.allocated_pages <= block_pages, "a page is allocated once");
  return {};
}

// Takes back pages that were handed over, because the program uses their addresses for far memory again.
result<void> page_ranges::take_back(page_range part, bool guarded) {
  if (guarded) {
    const result<void> done = guard_part(shared_, part, true);
    if (!done) return done;
  }
  for_each_run(shared_, part, true, [this](page_range run) {
    for (page_id page = run.first; page < run.end(); ++page) {
      shared_.pages.update(page, [](page_word word) { return word.with_state(state::untouched); });
    }
  });
  return {};
}

// ---- what it frees ----

void page_ranges::release(page_range range) {
  for_each_block(range, [this](block_id id, page_range part) {
    backoff waiting;
    while (true) {
      discard(part);
      // A miss that was reported before the program freed the page may be resolved as late as now; then once more.
      if (release_part(id, part)) return;
      if (!transfers_.help()) waiting.pause();
    }
  });
}

// The part of a block is no longer the program's. Requires: discarded. Returns false, and frees nothing, while somebody
// is at work on a page of it.
bool page_ranges::release_part(block_id id, page_range part) {
  block& target = shared_.blocks.at(id);
  const lock_guard guard(target.lock);
  FAR_CHECK(target.allocated_pages >= part.count, "a page is freed once");
  // A fresh block has Untouched pages only, also where a late miss has filled one that was freed long ago.
  const page_range checked = target.allocated_pages == part.count ? pages_of(id) : part;
  if (target.kind == block_kind::guarded && !forget_part(checked)) return false;
  target.allocated_pages = static_cast<std::uint16_t>(target.allocated_pages - part.count);
  if (target.kind == block_kind::open) shared_.local.release(part.count);
  if (target.allocated_pages > 0) return true;
  if (target.kind == block_kind::guarded || target.partly_guarded) unguard_block(shared_, id);
  target.kind = block_kind::fresh;
  return true;
}

// Whether no page of the part has bytes, nor gets any before the block's lock is released. Requires: the lock is held.
bool page_ranges::forget_part(page_range part) {
  for (page_id page = part.first; page < part.end(); ++page) {
    bool unmap = false;
    if (!begin_discard(shared_, page, &unmap)) return false;
    if (unmap) finish_discard(shared_, page);
    const state left = shared_.pages.load(page).where();
    if (left != state::untouched && left != state::foreign) return false;
  }
  return true;
}

bool page_ranges::release_if_empty(page_range range) {
  bool empty = true;
  for_each_block(range, [this, &empty](block_id id, page_range part) {
    block& holder = shared_.blocks.at(id);
    const lock_guard guard(holder.lock);
    if (holder.kind == block_kind::open) {
      std::array<bool, block_pages> filled{};
      if (empty) shared_.space.query_filled(part, filled);
      empty = empty && std::find(filled.begin(), filled.end(), true) == filled.end();
    }
    for (page_id page = part.first; empty && page < part.end(); ++page) {
      const page_word word = shared_.pages.load(page);
      empty = word.where() == state::untouched && word.pins() == 0;
    }
  });
  if (empty) release(range);
  return empty;
}

// ---- what it forgets, fills, or maps over ----

void page_ranges::discard(page_range range) {
  for_each_block(range, [this](block_id id, page_range part) {
    block& holder = shared_.blocks.at(id);
    {
      const lock_guard guard(holder.lock);
      if (holder.kind == block_kind::fresh) return;
      if (holder.kind == block_kind::open) {
        // Locked memory keeps its bytes, as it does natively.
        static_cast<void>(shared_.space.drop({&part, 1}));
        return;
      }
    }
    discard_guarded(part);
  });
}

void page_ranges::discard_guarded(page_range range) {
  claimed_pages unmapping(shared_);
  for (page_id page = range.first; page < range.end(); ++page) {
    bool unmap = false;
    backoff waiting;
    while (!begin_discard(shared_, page, &unmap)) {
      unmapping.finish();
      if (!transfers_.help()) waiting.pause();
    }
    if (unmap) unmapping.add(page);
  }
  unmapping.finish();
}

bool page_ranges::populate_open(page_range part, bool write, int* error_code) {
  block& holder = shared_.blocks.holding(part.first);
  const lock_guard guard(holder.lock);
  if (holder.kind != block_kind::open) return false;
  fill_guarded(shared_, part);
  *error_code = shared_.space.populate(part, write);
  return true;
}

void page_ranges::hand_over(page_range range) {
  for_each_block(range, [this](block_id id, page_range part) {
    backoff waiting;
    while (!hand_over_part(id, part)) {
      if (!transfers_.help()) waiting.pause();
    }
  });
}

// Returns false, to be called again, while somebody is at work on a page of it.
bool page_ranges::hand_over_part(block_id id, page_range part) {
  block& holder = shared_.blocks.at(id);
  const lock_guard guard(holder.lock);
  shared_.blocks.note_use(id);
  if (holder.kind == block_kind::guarded) {
    if (!forget_part(part)) return false;
    // A mapping that the program makes there would end the guard, too; the kernel may have no room for the moment in
    // between.
    for_each_run(shared_, part, false, [this](page_range run) { static_cast<void>(shared_.space.unguard(run)); });
  }
  for_each_run(shared_, part, false, [this](page_range run) {
    for (page_id page = run.first; page < run.end(); ++page) {
      shared_.pages.update(page, [](page_word word) { return word.with_state(state::foreign); });
    }
  });
  return true;
}

}  // namespace far::engine
