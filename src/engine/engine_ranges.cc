// The engine's work on whole ranges: what the program frees, forgets, moves, or wants out.
#include <algorithm>
#include <array>
#include <mutex>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/ranges.h"

namespace far::engine {
namespace {

constexpr std::uint64_t longest_wait_under_lock_ns = 1'000'000;

}  // namespace

void engine::release(page_range range) {
  for_each_block(range, [this](block_id which, page_range part) {
    backoff waiting;
    while (true) {
      discard(part);
      // A miss that was reported before the program freed the page may be resolved as late as now; then once more.
      if (release_part(shared_, which, part)) return;
      if (!help()) waiting.pause();
    }
  });
}

void engine::discard(page_range range) {
  for_each_block(range, [this](block_id which, page_range part) {
    block& holder = shared_.blocks.at(which);
    {
      const std::lock_guard guard(holder.lock);
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

void engine::discard_guarded(page_range range) {
  page_range unmapping{range.first, 0};  // claimed neighbours that are to be unmapped in one call
  for (page_id page = range.first; page < range.end(); ++page) {
    bool unmap = false;
    backoff waiting;
    while (!begin_discard(shared_, page, &unmap)) {
      if (!help()) waiting.pause();
    }
    if (unmap && unmapping.end() == page) {
      ++unmapping.count;
      continue;
    }
    finish_discard(shared_, unmapping);
    unmapping = {unmap ? page : page + 1, unmap ? std::size_t{1} : std::size_t{0}};
  }
  finish_discard(shared_, unmapping);
}

void engine::hand_over(page_range range) {
  for_each_block(range, [this](block_id which, page_range part) {
    backoff waiting;
    while (!hand_over_part(shared_, which, part)) {
      if (!help()) waiting.pause();
    }
  });
}

bool engine::release_if_empty(page_range range) {
  bool empty = true;
  for_each_block(range, [this, &empty](block_id which, page_range part) {
    block& holder = shared_.blocks.at(which);
    const std::lock_guard guard(holder.lock);
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

bool engine::populate_open(page_range part) {
  const block& holder = shared_.blocks.holding(part.first);
  const std::lock_guard guard(shared_.blocks.holding(part.first).lock);
  if (holder.kind != block_kind::open) return false;
  static_cast<void>(shared_.space.populate(part));
  return true;
}

result<void> engine::move(page_range from, page_id to) {
  bool closed = true;
  for_each_block(from, [this, &closed](block_id which, page_range) {
    block& holder = shared_.blocks.at(which);
    const std::lock_guard guard(holder.lock);
    if (holder.kind == block_kind::open) closed &= close_block(shared_, which);
  });
  if (!closed) return error{"the kernel refuses to guard memory that is to be moved", 0};
  for (std::size_t i = 0; i < from.count; ++i) {
    backoff waiting;
    while (!move_page(from.first + i, to + i)) {
      if (!help()) waiting.pause();
    }
  }
  return {};
}

// Takes an Untouched page for bytes that are about to come. A miss from before the program had the page may have filled
// it with zeros meanwhile; those go.
void engine::claim_target(page_id page) {
  backoff waiting;
  while (true) {
    page_word word = shared_.pages.load(page);
    if (word.where() == state::untouched) {
      if (shared_.pages.transition(page, word, word.with_state(state::fetching))) return;
      continue;
    }
    bool unmap = false;
    if (!begin_discard(shared_, page, &unmap)) {
      if (!help()) waiting.pause();
    } else if (unmap) {
      finish_discard(shared_, {page, 1});
    }
  }
}

// Returns false while somebody else is at work on the page.
bool engine::move_page(page_id from, page_id to) {
  const auto forget = [](page_word word) {
    return word.with_state(state::untouched)
        .with_eviction_priority(0)
        .with_dirty(false)
        .with_place(page_word::no_place);
  };
  page_word word = shared_.pages.load(from);
  while (true) {
    const page_word before = word;
    switch (word.where()) {
      case state::untouched:
      case state::foreign: return true;
      case state::evicting:
      case state::fetching: return false;
      case state::lost:
        if (!shared_.pages.transition(from, word, forget(word))) break;
        claim_target(to);
        shared_.pages.update(to, [before](page_word moved) {
          return moved.with_state(state::lost).with_place(before.place()).with_epoch(before.epoch());
        });
        return true;
      case state::remote: {
        // In our hands, so that nobody gives it other bytes, with another hash, before its hash is known.
        if (!shared_.pages.transition(from, word, word.with_state(state::fetching))) break;
        const page_checks::check hash = shared_.checks.of(from);
        shared_.pages.update(from, forget);
        claim_target(to);
        shared_.checks.set(to, hash);
        shared_.pages.update(to, [before](page_word moved) {
          return moved.with_state(state::remote).with_place(before.place()).with_epoch(before.epoch());
        });
        return true;
      }
      case state::resident: {
        if (!shared_.pages.transition(from, word, word.with_state(state::evicting).with_lifted(false))) break;
        claim_target(to);
        const std::size_t moved = shared_.space.relocate({from, 1}, to);
        if (moved == 0 && shared_.forget_if_dropped(from)) {
          shared_.pages.update(to, forget);
          return true;
        }
        FAR_CHECK(moved == 1, "a resident page can be moved (is it locked in memory?)");
        shared_.pages.update(from, forget);
        if (before.has_place()) shared_.free_slot(before.place());
        shared_.pages.update(to, [](page_word arrived) {
          return arrived.with_state(state::resident).with_dirty(true).with_place(page_word::no_place);
        });
        shared_.admit(to, temperature::warm);
        return true;
      }
    }
  }
}

void engine::evict(page_range range, std::size_t pages_a_batch, host* around) {
  FAR_CHECK(pages_a_batch > 0 && pages_a_batch <= batch_pages, "a batch has 1 to 64 pages");
  for_each_block(range, [this](block_id which, page_range) {
    block& holder = shared_.blocks.at(which);
    const std::lock_guard guard(holder.lock);
    if (holder.kind == block_kind::open) static_cast<void>(close_block(shared_, which));
  });
  std::array<page_id, batch_pages> victims;
  std::size_t count = 0;
  for (page_id page = range.first; page < range.end(); ++page) {
    if (shared_.pages.load(page).where() == state::resident) victims[count++] = page;
    if (count < pages_a_batch && (count == 0 || page + 1 < range.end())) continue;
    // Submitted by this thread, whichever it is: it waits for them below.
    step_until(around, [&](evictor& by) { return by.evict({victims.data(), count}, caller::of_runtime); });
    count = 0;
  }
  for (page_id page = range.first; page < range.end(); ++page) {
    step_until(around, [this, page](evictor&) {
      const page_word word = shared_.pages.load(page);
      // What the other evictors have lifted is theirs.
      constexpr std::uint64_t first_of_last = (evictors - 1) * evictor::staging_pages;
      return word.where() != state::evicting || !word.lifted() || word.place() < first_of_last;
    });
  }
}

// Takes steps of the last evictor until `done(evictor)`, which is called with its lock held. The lock is given up after
// each step: a fork waits for it with the locks of the fetchers held, and with it whoever misses; and a thread of the
// runtime, where writes are left to it. What is left may be what this thread has found itself, of which that one knows
// nothing, and sleeps.
template <typename Done>
void engine::step_until(host* around, Done done) {
  evictor& by = *evictors_.back();
  while (true) {
    for (backoff turn; forking_.load(std::memory_order_acquire) || by.has_left_writes();) {
      if (around != nullptr && by.has_left_writes()) around->wake_background();
      turn.pause();
    }
    const std::lock_guard guard(by.lock);
    if (done(by)) return;
    if (!by.step(false, caller::of_program)) by.wait(longest_wait_under_lock_ns);
  }
}

}  // namespace far::engine
