// The engine's work on whole ranges: what the program frees, forgets, moves, or wants out.
#include <array>
#include <mutex>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/ranges.h"

namespace far::engine {

void engine::release(page_range range) {
  for_each_block(range, [this](block_id which, page_range part) {
    do {
      discard(part);
      // A miss that was reported before the program freed the page may be resolved as late as now; then once more.
    } while (!release_part(shared_, which, part));
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
    while (!discard_page(page, &unmap)) {
      if (!help()) waiting.pause();
    }
    if (unmap && unmapping.end() == page) {
      ++unmapping.count;
      continue;
    }
    finish_discard(unmapping);
    unmapping = {unmap ? page : page + 1, unmap ? std::size_t{1} : std::size_t{0}};
  }
  finish_discard(unmapping);
}

// Forgets a page, or claims it for finish_discard and sets `unmap`. Returns false while somebody else is at work on it.
bool engine::discard_page(page_id page, bool* unmap) {
  page_word word = shared_.pages.load(page);
  while (true) {
    switch (word.where()) {
      case state::untouched: return true;
      case state::lost:
      case state::remote: {
        const page_word before = word;
        if (!shared_.pages.transition(page, word, word.with_state(state::untouched).with_place(page_word::no_place))) {
          break;
        }
        if (before.has_place()) shared_.free_slot(before.place());
        return true;
      }
      case state::resident:
        if (!shared_.pages.transition(page, word, word.with_state(state::evicting).with_lifted(false))) break;
        *unmap = true;
        return true;
      case state::evicting:
      case state::fetching: return false;
    }
  }
}

void engine::finish_discard(page_range range) {
  if (range.count == 0) return;
  if (shared_.space.drop({&range, 1}) != 1) {
    // Locked memory keeps its bytes. Pages before the locked one may be gone, so each is asked for alone.
    if (range.count > 1) {
      for (page_id page = range.first; page < range.end(); ++page) finish_discard({page, 1});
      return;
    }
    shared_.pages.update(range.first, [](page_word word) { return word.with_state(state::resident); });
    shared_.admit(range.first, temperature::warm);
    return;
  }
  for (page_id page = range.first; page < range.end(); ++page) {
    const page_word before = shared_.pages.load(page);
    shared_.pages.update(page, [](page_word word) {
      return word.with_state(state::untouched).with_dirty(false).with_accessed(false).with_place(page_word::no_place);
    });
    if (before.has_place()) shared_.free_slot(before.place());
  }
  shared_.local.release(range.count);
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

// Returns false while somebody else is at work on the page.
bool engine::move_page(page_id from, page_id to) {
  const auto claim = [](page_word word) { return word.with_state(state::fetching); };
  const auto forget = [](page_word word) {
    return word.with_state(state::untouched).with_dirty(false).with_place(page_word::no_place);
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
        shared_.pages.update(to, claim);
        shared_.pages.update(to, [before](page_word moved) {
          return moved.with_state(before.where()).with_place(before.place()).with_epoch(before.epoch());
        });
        return true;
      }
      case state::resident: {
        if (!shared_.pages.transition(from, word, word.with_state(state::evicting).with_lifted(false))) break;
        shared_.pages.update(to, claim);
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

void engine::evict(page_range range) {
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
    if (count == batch_pages) flush();
  }
  if (count > 0) flush();
  while (!by.idle()) {
    if (!by.step(false)) by.wait(1'000'000);
  }
}

}  // namespace far::engine
