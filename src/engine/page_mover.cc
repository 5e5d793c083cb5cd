#include "engine/page_mover.h"

#include <cerrno>

#include "base/check.h"
#include "base/lock_guard.h"
#include "engine/block_guards.h"
#include "engine/page_discard.h"

namespace far::engine {
namespace {

page_word forgotten(page_word word) {
  return word.with_state(state::untouched).with_eviction_priority(0).with_dirty(false).with_place(page_word::no_place);
}

}  // namespace

result<void> page_mover::guard_source(page_range from) {
  bool closed = true;
  for_each_block(from, [this, &closed](block_id id, page_range) {
    block& holder = shared_.blocks.at(id);
    const lock_guard guard(holder.lock);
    if (holder.kind == block_kind::open) closed = closed && close_block(shared_, id);
  });
  if (closed) return {};
  return error{"the kernel refuses to guard memory that is to be moved; raise vm.max_map_count", ENOMEM};
}

void page_mover::move(page_range from, page_id to) {
  for (std::size_t i = 0; i < from.count; ++i) {
    backoff waiting;
    while (!move_page(from.first + i, to + i)) {
      if (!transfers_.help()) waiting.pause();
    }
  }
}

// Returns false while somebody else is at work on the page.
bool page_mover::move_page(page_id from, page_id to) {
  page_word word = shared_.pages.load(from);
  while (true) {
    const page_word before = word;
    switch (word.where()) {
      case state::untouched:
      case state::foreign: return true;
      case state::evicting:
      case state::fetching: return false;
      case state::lost:
        if (!shared_.pages.transition(from, word, forgotten(word))) break;
        claim_target(to);
        shared_.pages.update(to, [before](page_word moved) {
          return moved.with_state(state::lost).with_place(before.place()).with_epoch(before.epoch());
        });
        return true;
      case state::remote:
        if (!shared_.pages.transition(from, word, word.with_state(state::fetching))) break;
        move_remote(from, to, before);
        return true;
      case state::resident:
        if (!shared_.pages.transition(from, word, word.with_state(state::evicting).with_lifted(false))) break;
        move_resident(from, to, before);
        return true;
    }
  }
}

// The page is in our hands (Fetching), so that nobody gives it other bytes, with another hash, before its hash is
// known.
void page_mover::move_remote(page_id from, page_id to, page_word before) {
  const page_checks::check hash = shared_.checks.hash_of(from);
  shared_.pages.update(from, forgotten);
  claim_target(to);
  shared_.checks.set(to, hash);
  shared_.pages.update(to, [before](page_word moved) {
    return moved.with_state(state::remote).with_place(before.place()).with_epoch(before.epoch());
  });
}

// The page is in our hands (Evicting, not lifted).
void page_mover::move_resident(page_id from, page_id to, page_word before) {
  claim_target(to);
  const std::size_t moved = shared_.space.relocate({from, 1}, to);
  if (moved == 0 && shared_.forget_if_dropped(from)) {
    shared_.pages.update(to, forgotten);
    return;
  }
  FAR_CHECK(moved == 1, "a resident page can be moved (is it locked in memory?)");
  shared_.pages.update(from, forgotten);
  if (before.has_place()) shared_.free_slot(before.place());
  shared_.pages.update(to, [](page_word arrived) {
    return arrived.with_state(state::resident).with_dirty(true).with_place(page_word::no_place);
  });
  shared_.admit(to, temperature::warm);
}

// Takes an Untouched page for bytes that are about to come. A miss from before the program had the page may have filled
// it with zeros meanwhile; those go.
void page_mover::claim_target(page_id page) {
  backoff waiting;
  while (true) {
    page_word word = shared_.pages.load(page);
    if (word.where() == state::untouched) {
      if (shared_.pages.transition(page, word, word.with_state(state::fetching))) return;
      continue;
    }
    bool unmap = false;
    if (!begin_discard(shared_, page, &unmap)) {
      if (!transfers_.help()) waiting.pause();
    } else if (unmap) {
      finish_discard(shared_, page);
    }
  }
}

}  // namespace far::engine
