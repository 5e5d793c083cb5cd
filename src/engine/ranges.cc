#include "engine/ranges.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "base/check.h"
#include "base/log.h"

namespace far::engine {
namespace {

// The kernel has no room for another mapping, so a block cannot be told apart from its neighbours any more.
void say_that_guards_are_refused(const error& why) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  log_line(log_level::warning, "%s; local memory may exceed the budget until then", why.message.c_str());
}

// Guards a part of a block, as far as it is ours, or none of it.
result<void> guard_ours(core& shared, page_range part, bool foreign) {
  result<void> outcome;
  page_id done = part.first;
  for_each_run(shared, part, foreign, [&](page_range run) {
    if (!outcome) return;
    outcome = shared.space.guard(run);
    if (outcome) done = run.end();
  });
  if (outcome) return outcome;
  for_each_run(shared, {part.first, static_cast<std::size_t>(done - part.first)}, foreign,
               [&](page_range run) { static_cast<void>(shared.space.unguard(run)); });
  return outcome;
}

// Pages that were handed over, and whose place the program uses for far memory again.
result<void> take_back(core& shared, page_range part, bool guarded) {
  if (guarded) {
    const result<void> done = guard_ours(shared, part, true);
    if (!done) return done;
  }
  for_each_run(shared, part, true, [&shared](page_range run) {
    for (page_id page = run.first; page < run.end(); ++page) {
      shared.pages.update(page, [](page_word word) { return word.with_state(state::untouched); });
    }
  });
  return {};
}

result<void> allocate_part(core& shared, block_id which, page_range part, bool guarded) {
  block& target = shared.blocks.at(which);
  shared.blocks.note_use(which);
  const std::lock_guard guard(target.lock);
  const result<void> back = take_back(shared, part, target.kind == block_kind::guarded);
  if (!back) return back;
  const std::uint64_t reserve = shared.local.high_watermark_pages();
  const auto charge = [&shared, part, reserve] { return shared.local.try_charge(part.count, reserve); };
  // A block that cannot be guarded stays the kernel's: the budget is exceeded, and nobody is refused memory.
  const auto charge_anyway = [&shared, part](const error& why) {
    say_that_guards_are_refused(why);
    shared.local.charge(part.count);
    shared.allow_excess();
  };
  if (target.kind == block_kind::fresh) {
    const bool opens = !guarded && charge();
    const result<void> done = opens ? result<void>() : guard_block(shared, which);
    if (!done && guarded) return done;
    if (!done) charge_anyway(done.error());
    target.kind = opens || !done ? block_kind::open : block_kind::guarded;
    if (target.kind == block_kind::open) shared.admit(pages_of(which).first, temperature::warm);
  } else if (target.kind == block_kind::open && (guarded || !charge()) && !close_block(shared, which)) {
    const error why{"the kernel refuses to guard more of the far heap; raise vm.max_map_count", ENOMEM};
    if (guarded) return why;
    charge_anyway(why);
  }
  target.allocated_pages = static_cast<std::uint16_t>(target.allocated_pages + part.count);
  FAR_CHECK(target.allocated_pages <= block_pages, "a page is allocated once");
  return {};
}

// Whether no page of the part has bytes, nor gets any before the block's lock is let go. Requires: the lock is held.
bool forget_part(core& shared, page_range part) {
  for (page_id page = part.first; page < part.end(); ++page) {
    bool unmap = false;
    if (!begin_discard(shared, page, &unmap)) return false;
    if (unmap) finish_discard(shared, {page, 1});
    const state left = shared.pages.load(page).where();
    if (left != state::untouched && left != state::foreign) return false;
  }
  return true;
}

}  // namespace

result<void> allocate_range(core& shared, page_range range, bool guarded) {
  result<void> outcome;
  page_range done{range.first, 0};
  for_each_block(range, [&](block_id which, page_range part) {
    if (!outcome) return;
    outcome = allocate_part(shared, which, part, guarded);
    if (outcome) done.count += part.count;
  });
  if (outcome) return outcome;
  for_each_block(done, [&](block_id which, page_range part) {
    // Nothing was touched yet, except by a late miss, and the evictor may be at work on that.
    backoff waiting;
    while (!release_part(shared, which, part)) waiting.pause();
  });
  return outcome;
}

result<void> adopt_range(core& shared, page_range range) {
  result<void> outcome;
  for_each_block(range, [&](block_id which, page_range part) {
    if (!outcome) return;
    FAR_CHECK(part.count == block_pages, "only whole blocks are adopted");
    block& target = shared.blocks.at(which);
    shared.blocks.note_use(which);
    const std::lock_guard guard(target.lock);
    const bool fits = shared.local.try_charge(part.count, shared.local.high_watermark_pages());
    if (!fits) shared.local.charge(part.count);  // until the block is closed, which counts what it has
    target.kind = block_kind::open;
    target.allocated_pages = block_pages;
    if (fits) {
      shared.admit(part.first, temperature::warm);
    } else if (!close_block(shared, which)) {
      outcome = error{"the kernel refuses to guard memory that is to become far", 0};
    }
  });
  return outcome;
}

bool begin_discard(core& shared, page_id page, bool* unmap) {
  page_word word = shared.pages.load(page);
  while (true) {
    switch (word.where()) {
      case state::untouched:
      case state::foreign: return true;
      case state::lost:
      case state::remote: {
        const page_word before = word;
        if (!shared.pages.transition(
                page, word,
                word.with_state(state::untouched).with_eviction_priority(0).with_place(page_word::no_place))) {
          break;
        }
        if (before.has_place()) shared.free_slot(before.place());
        return true;
      }
      case state::resident:
        if (!shared.pages.transition(page, word, word.with_state(state::evicting).with_lifted(false))) break;
        *unmap = true;
        return true;
      case state::evicting:
      case state::fetching: return false;
    }
  }
}

bool drop_page(core& shared, page_id page) {
  const page_range single{page, 1};
  if (shared.space.drop({&single, 1}) == 1) return true;
  bool filled = true;
  shared.space.query_filled(single, {&filled, 1});
  return !filled;
}

void finish_discard(core& shared, page_range range) {
  if (range.count == 0) return;
  if (range.count > 1 && shared.space.drop({&range, 1}) != 1) {
    // Pages before the locked one may be gone, so each is asked for alone.
    for (page_id page = range.first; page < range.end(); ++page) finish_discard(shared, {page, 1});
    return;
  }
  if (range.count == 1 && !drop_page(shared, range.first)) {
    // Locked memory keeps its bytes.
    shared.pages.update(range.first, [](page_word word) { return word.with_state(state::resident); });
    shared.admit(range.first, temperature::warm);
    return;
  }
  for (page_id page = range.first; page < range.end(); ++page) {
    const page_word before = shared.pages.load(page);
    shared.pages.update(page, [](page_word word) {
      return word.with_state(state::untouched)
          .with_eviction_priority(0)
          .with_dirty(false)
          .with_accessed(false)
          .with_place(page_word::no_place);
    });
    if (before.has_place()) shared.free_slot(before.place());
  }
  shared.local.release(range.count);
}

bool release_part(core& shared, block_id which, page_range part) {
  block& target = shared.blocks.at(which);
  const std::lock_guard guard(target.lock);
  FAR_CHECK(target.allocated_pages >= part.count, "a page is freed once");
  // A fresh block has Untouched pages only, also where a late miss has filled one that was freed long ago.
  const page_range checked = target.allocated_pages == part.count ? pages_of(which) : part;
  if (target.kind == block_kind::guarded && !forget_part(shared, checked)) return false;
  target.allocated_pages = static_cast<std::uint16_t>(target.allocated_pages - part.count);
  if (target.kind == block_kind::open) shared.local.release(part.count);
  if (target.allocated_pages > 0) return true;
  if (target.kind == block_kind::guarded) {
    bool unguarded = true;
    for_each_run(shared, pages_of(which), false, [&](page_range run) { unguarded &= shared.space.unguard(run); });
    // It stays guarded, all of it, and empty, if the kernel has no room for another mapping.
    if (!unguarded) {
      static_cast<void>(guard_block(shared, which));
      return true;
    }
  }
  target.kind = block_kind::fresh;
  return true;
}

bool hand_over_part(core& shared, block_id which, page_range part) {
  block& holder = shared.blocks.at(which);
  const std::lock_guard guard(holder.lock);
  shared.blocks.note_use(which);
  if (holder.kind == block_kind::guarded) {
    if (!forget_part(shared, part)) return false;
    // What the program maps there would end the guard, too; the kernel may have no room for the moment in between.
    for_each_run(shared, part, false, [&shared](page_range run) { static_cast<void>(shared.space.unguard(run)); });
  }
  for_each_run(shared, part, false, [&shared](page_range run) {
    for (page_id page = run.first; page < run.end(); ++page) {
      shared.pages.update(page, [](page_word word) { return word.with_state(state::foreign); });
    }
  });
  return true;
}

result<void> guard_block(core& shared, block_id which) {
  return guard_ours(shared, pages_of(which), false);
}

bool close_block(core& shared, block_id which) {
  block& closing = shared.blocks.at(which);
  const page_range range = pages_of(which);
  const result<void> guarded = guard_block(shared, which);
  if (!guarded) {
    say_that_guards_are_refused(guarded.error());
    return false;
  }
  // From here on no page of the block is filled behind our back, so what is filled now is all there is.
  std::array<bool, block_pages> filled{};
  shared.space.query_filled(range, filled);
  std::size_t found = 0;
  for (std::size_t i = block_pages; i-- > 0;) {
    if (shared.pages.load(range.first + i).where() == state::foreign) continue;
    if (!filled[i]) {
      shared.pages.uses.erase(range.first + i);
      continue;
    }
    ++found;
    shared.pages.update(range.first + i,
                        [](page_word word) { return word.with_state(state::resident).with_dirty(true); });
    shared.admit(range.first + i, temperature::cold);
  }
  if (found <= closing.allocated_pages) {
    shared.local.release(closing.allocated_pages - found);
  } else {
    shared.local.charge(found - closing.allocated_pages);
  }
  closing.kind = block_kind::guarded;
  return true;
}

}  // namespace far::engine
