#include "engine/fork_steps.h"

#include <array>

#include "base/check.h"
#include "engine/block_guards.h"

namespace far::engine {

// Held from before the fork to after it.
void fork_steps::lock() FAR_UNCHECKED_LOCKING {
  eviction_.note_fork(true);
  tending_.lock();
  transfers_.lock_all();
  shared_.lock_order();
  shared_.far.prepare_fork();
}

void fork_steps::unlock() FAR_UNCHECKED_LOCKING {
  shared_.far.after_fork_in_parent();
  shared_.unlock_order();
  transfers_.unlock_all();
  tending_.unlock();
  eviction_.note_fork(false);
}

bool fork_steps::has_guarded_blocks() const {
  bool any = false;
  shared_.blocks.for_each_used([&](block_id id) {
    const block& used = shared_.blocks.at(id);
    used.lock.assert_held();
    any |= used.kind == block_kind::guarded || used.partly_guarded;
  });
  return any;
}

// The order matters: locks are opened before anything is taken under them, blocks are guarded again before staged pages
// return to them, and frames are counted when all pages have their final state.
result<void> fork_steps::resume_in_child(std::span<const page_range> pinned, bool serves_misses) {
  if (!serves_misses) shared_.serve_no_misses();
  shared_.far.after_fork_in_child();
  shared_.open_order_in_child();
  tending_.open_in_child();
  eviction_.restart_in_child();
  transfers_.open_in_child();
  shared_.reads.restart_in_child();
  const result<void> guarded = guard_again();
  if (!guarded) return guarded;
  for (const std::unique_ptr<evictor>& evictor : transfers_.evictors()) evictor->put_back_in_child();
  if (serves_misses) {
    const result<void> renewed = shared_.space.renew_staging(shared_.staged(0), transfer_queues::staging_pages);
    if (!renewed) return renewed;
  }

  keep_pins(pinned);
  std::uint64_t frames = 0;
  shared_.blocks.for_each_used([&](block_id id) {
    const block& used = shared_.blocks.at(id);
    used.lock.assert_held();
    if (used.kind == block_kind::open) {
      frames += used.allocated_pages;
      shared_.admit(pages_of(id).first, temperature::warm);  // the thread that was about to is not in this process
    }
    if (used.kind == block_kind::guarded) frames += resume_block(id);
  });
  shared_.far.close_claims_in_child();
  shared_.begin_again(frames);
  const result<void> restarted = transfers_.restart_in_child();
  return serves_misses ? restarted : result<void>();  // without misses there are no transfers
}

// Other threads that pinned pages are not in this process, and will not unpin them.
void fork_steps::keep_pins(std::span<const page_range> pinned) {
  shared_.blocks.for_each_used([this](block_id id) {
    for (page_id page = pages_of(id).first; page < pages_of(id).end(); ++page) {
      if (shared_.pages.load(page).pins() == 0) continue;
      shared_.pages.update(page, [](page_word now) { return now.with_pins(0); });
    }
  });
  for (const page_range& range : pinned) {
    for (page_id page = range.first; page < range.end(); ++page) {
      shared_.pages.update(page, [](page_word now) { return now.with_pins(now.pins() + 1); });
    }
  }
}

result<void> fork_steps::guard_again() {
  result<void> outcome;
  shared_.blocks.for_each_used([&](block_id id) {
    block& used = shared_.blocks.at(id);
    const bool was_held = used.lock.open_in_child();
    if (was_held && used.kind == block_kind::open) reopen(pages_of(id));
    if (outcome && used.kind == block_kind::guarded) outcome = guard_block(shared_, id);
  });
  return outcome;
}

// A thread was about to close the block: the pages that it had examined are the kernel's again.
void fork_steps::reopen(page_range range) {
  for (page_id page = range.first; page < range.end(); ++page) {
    if (shared_.pages.load(page).where() != state::resident) continue;
    shared_.pages.update(page, [](page_word now) { return now.with_state(state::evicting); });
    shared_.pages.update(page, [](page_word now) { return now.with_state(state::untouched).with_dirty(false); });
  }
}

// Whether the kernel has to be asked if the child has the page: one that a thread of the program was filling, unmapping
// or moving, or one that was never written. Of a mapping with nothing but the kernel's zeros the child gets no page.
bool fork_steps::is_unsure(page_word word) {
  if (word.where() == state::evicting) return true;
  return !word.has_place() && (word.where() == state::fetching || word.where() == state::resident);
}

// Returns how many frames the block has.
std::uint64_t fork_steps::resume_block(block_id id) {
  const page_range range = pages_of(id);
  std::array<bool, block_pages> filled{};
  // The kernel is not asked about the others: if its tables may not be read, asking fills the holes (query_filled).
  for (std::size_t i = 0; i < block_pages;) {
    std::size_t count = 0;
    while (i + count < block_pages && is_unsure(shared_.pages.load(range.first + i + count))) ++count;
    if (count > 0) shared_.space.query_filled({range.first + i, count}, std::span(filled).subspan(i, count));
    i += count + 1;
  }
  std::uint64_t frames = 0;
  for (std::size_t i = 0; i < block_pages; ++i) {
    resume_page(range.first + i, filled[i]);
    frames += shared_.pages.load(range.first + i).where() == state::resident ? 1 : 0;
  }
  return frames;
}

// Puts a page that another thread was at work on into a settled state again, and claims its slot.
void fork_steps::resume_page(page_id page, bool filled) {
  const page_word word = shared_.pages.load(page);
  state next = word.where();
  if (is_unsure(word)) {
    next = filled ? state::resident : state::untouched;
  } else if (word.where() == state::fetching) {
    next = state::remote;
  }
  // At a fork the kernel forgets to report the first writes to clean pages. So all of them are suspects: at eviction
  // the hash shows whether the slot still has their bytes.
  const bool was_clean = next == state::resident && !word.dirty();
  if (next != word.where() || was_clean) {
    FAR_CHECK(!word.lifted(), "what was lifted has been put back");
    if (word.where() == state::resident && next == state::untouched) {
      shared_.pages.update(page, [](page_word now) { return now.with_state(state::evicting); });
    }
    shared_.pages.update(page, [next, was_clean](page_word now) {
      const page_word settled = now.with_state(next);
      if (next == state::untouched) return settled.with_dirty(false).with_place(page_word::no_place);
      return was_clean ? settled.with_dirty(true).with_writes_expected(now.has_place()) : settled;
    });
  }
  const page_word settled = shared_.pages.load(page);
  if (next == state::resident) shared_.admit(page, temperature::warm);
  if (settled.has_place()) shared_.far.claim_in_child(settled.place());
}

}  // namespace far::engine
