#include "engine/ranges.h"

#include <array>
#include <mutex>

#include "base/check.h"
#include "base/log.h"

namespace far::engine {
namespace {

result<void> allocate_part(core& shared, block_id which, std::size_t pages, bool guarded) {
  block& target = shared.blocks.at(which);
  shared.blocks.note_use(which);
  const std::lock_guard guard(target.lock);
  const std::uint64_t reserve = shared.local.high_watermark_pages();
  const auto charge = [&shared, pages, reserve] {
    if (shared.detached) shared.local.charge(pages);
    return shared.detached || shared.local.try_charge(pages, reserve);
  };
  if (target.kind == block_kind::fresh && !guarded && charge()) {
    target.kind = block_kind::open;
    shared.admit(pages_of(which).first, temperature::warm);
  } else if (target.kind == block_kind::fresh) {
    const result<void> done = shared.space.guard(pages_of(which));
    if (!done) return done;
    target.kind = block_kind::guarded;
  } else if (target.kind == block_kind::open && (guarded || !charge())) {
    if (!close_block(shared, which)) return error{"the kernel refuses to guard more of the far heap", 0};
  }
  target.allocated_pages = static_cast<std::uint16_t>(target.allocated_pages + pages);
  FAR_CHECK(target.allocated_pages <= block_pages, "a page is allocated once");
  return {};
}

}  // namespace

result<void> allocate_range(core& shared, page_range range, bool guarded) {
  result<void> outcome;
  page_range done{range.first, 0};
  for_each_block(range, [&](block_id which, page_range part) {
    if (!outcome) return;
    outcome = allocate_part(shared, which, part.count, guarded);
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

bool begin_discard(core& shared, page_id page, bool* unmap) {
  page_word word = shared.pages.load(page);
  while (true) {
    switch (word.where()) {
      case state::untouched: return true;
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
  if (target.kind == block_kind::guarded) {
    // A fresh block has Untouched pages only, also where a late miss has filled one that was freed long ago.
    const page_range checked = target.allocated_pages == part.count ? pages_of(which) : part;
    for (page_id page = checked.first; page < checked.end(); ++page) {
      bool unmap = false;
      if (!begin_discard(shared, page, &unmap)) return false;
      if (unmap) finish_discard(shared, {page, 1});
      if (shared.pages.load(page).where() != state::untouched) return false;
    }
  }
  target.allocated_pages = static_cast<std::uint16_t>(target.allocated_pages - part.count);
  if (target.kind == block_kind::open) shared.local.release(part.count);
  if (target.allocated_pages > 0) return true;
  if (target.kind == block_kind::guarded) shared.space.unguard(pages_of(which));
  target.kind = block_kind::fresh;
  return true;
}

bool close_block(core& shared, block_id which) {
  block& closing = shared.blocks.at(which);
  const page_range range = pages_of(which);
  const result<void> guarded = shared.space.guard(range);
  if (!guarded) {
    log_line(log_level::warning, "%s; local memory may exceed the budget until then", guarded.error().message.c_str());
    return false;
  }
  // From here on no page of the block is filled behind our back, so what is filled now is all there is.
  std::array<bool, block_pages> filled{};
  shared.space.query_filled(range, filled);
  std::size_t found = 0;
  for (std::size_t i = block_pages; i-- > 0;) {
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
