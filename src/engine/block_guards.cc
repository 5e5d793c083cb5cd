#include "engine/block_guards.h"

#include <array>
#include <cerrno>

#include "base/check.h"

namespace far::engine {

result<void> guard_part(core_for_ranges& shared, page_range part, bool foreign) {
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

result<void> guard_block(core_for_ranges& shared, block_id id) {
  block& guarded = shared.blocks.at(id);
  guarded.lock.assert_held();
  if (!shared.serves_misses()) return error{"the process has no userfaultfd", EBADF};
  const result<void> outcome = guard_part(shared, pages_of(id), false);
  // Another thread may have taken the mapping that the guard of the first pages set free, and that ending it needs.
  guarded.partly_guarded = !outcome.ok();
  return outcome;
}

void unguard_block(core_for_ranges& shared, block_id id) {
  block& guarded = shared.blocks.at(id);
  guarded.lock.assert_held();
  bool is_done = true;
  for_each_run(shared, pages_of(id), false, [&](page_range run) { is_done &= shared.space.unguard(run); });
  guarded.partly_guarded = !is_done;
}

void fill_guarded(core_for_ranges& shared, page_range part) {
  const block& holder = shared.blocks.holding(part.first);
  holder.lock.assert_held();
  if (holder.kind != block_kind::open || !holder.partly_guarded) return;
  for (page_id page = part.first; page < part.end(); ++page) {
    int failure = 0;
    backoff waiting;
    while (shared.space.install({page, 1}, shared.zeros, platform::mapping::writable, &failure) != 1 &&
           failure != EEXIST && failure != ENOENT) {
      wait_for_kernel_memory(failure, &waiting);
    }
  }
}

// The guard comes first: without it a page could be filled after it was counted. Pages are admitted from the last to
// the first, so that a policy offers them in the order of their addresses.
bool close_block(core_for_ranges& shared, block_id id) {
  block& closing = shared.blocks.at(id);
  closing.lock.assert_held();
  FAR_CHECK(closing.kind == block_kind::open, "a block is opened before it is closed");
  const page_range range = pages_of(id);
  const result<void> guarded = guard_block(shared, id);
  if (!guarded) {
    shared.note_refused_guard(guarded.error());
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
  const std::size_t charged = closing.allocated_pages;
  if (found <= charged) {
    shared.local.release(charged - found);
  } else {
    shared.local.charge(found - charged);
  }
  closing.kind = block_kind::guarded;
  return true;
}

}  // namespace far::engine
