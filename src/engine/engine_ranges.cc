// The engine's work on whole ranges: what the program frees, forgets, moves, or wants out.
#include <array>
#include <mutex>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/ranges.h"

namespace far::engine {

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

void engine::guard_again(page_range range) {
  for_each_block(range, [this](block_id which, page_range) {
    block& holder = shared_.blocks.at(which);
    const std::lock_guard guard(holder.lock);
    // Were the kernel to refuse, the block's pages would stay resident: they are not ours to lose.
    if (holder.kind == block_kind::guarded) static_cast<void>(shared_.space.guard(pages_of(which)));
  });
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
      case state::untouched: return true;
      case state::evicting:
      case state::fetching: return false;
      case state::lost:
      case state::remote: {
        if (!shared_.pages.transition(from, word, forget(word))) break;
        claim_target(to);
        shared_.pages.update(to, [before](page_word moved) {
          return moved.with_state(before.where()).with_place(before.place()).with_epoch(before.epoch());
        });
        return true;
      }
      case state::resident: {
        if (!shared_.pages.transition(from, word, word.with_state(state::evicting).with_lifted(false))) break;
        claim_target(to);
        const std::size_t moved = shared_.space.relocate({from, 1}, to);
        FAR_CHECK(moved == 1, "a resident page can be moved (is it locked in memory?)");
        if (before.has_place()) shared_.free_slot(before.place());
        shared_.pages.update(from, forget);
        shared_.pages.update(to, [](page_word arrived) {
          return arrived.with_state(state::resident).with_dirty(true).with_place(page_word::no_place);
        });
        shared_.admit(to, temperature::warm);
        return true;
      }
    }
  }
}

void engine::evict(page_range range, std::size_t pages_a_batch) {
  FAR_CHECK(pages_a_batch > 0 && pages_a_batch <= batch_pages, "a batch has 1 to 64 pages");
  if (shared_.detached) return;
  for_each_block(range, [this](block_id which, page_range) {
    block& holder = shared_.blocks.at(which);
    const std::lock_guard guard(holder.lock);
    if (holder.kind == block_kind::open) static_cast<void>(close_block(shared_, which));
  });
  evictor& by = *evictors_.back();
  const std::lock_guard guard(by.lock);
  std::array<page_id, batch_pages> victims;
  std::size_t count = 0;
  const auto flush = [&] {
    while (!by.evict({victims.data(), count})) {
      if (!by.step(false)) by.wait(1'000'000);
    }
    count = 0;
  };
  for (page_id page = range.first; page < range.end(); ++page) {
    if (shared_.pages.load(page).where() == state::resident) victims[count++] = page;
    if (count == pages_a_batch) flush();
  }
  if (count > 0) flush();
  while (!by.idle()) {
    if (!by.step(false)) by.wait(1'000'000);
  }
}

}  // namespace far::engine
