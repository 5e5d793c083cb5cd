#include "engine/page_pins.h"

#include "base/check.h"
#include "base/lock_guard.h"
#include "engine/block_guards.h"

namespace far::engine {

// A page that is resident and dirty, or Foreign, is pinned by its word alone. One of an open block is filled under the
// block's lock first, so that the block cannot be closed between the fill and the pin. One of a fresh block is at most
// reserved: there is nothing to fill.
bool page_pins::try_pin(page_id page) {
  const auto with_pin = [](page_word word) {
    FAR_CHECK(word.pins() < page_word::maximum_pins, "a page is pinned by fewer than 256 callers");
    return word.with_pins(word.pins() + 1);
  };
  page_word word = shared_.pages.load(page);
  while (word.where() == state::resident && word.dirty()) {
    if (shared_.pages.transition(page, word, with_pin(word))) return true;
  }
  if (word.where() == state::foreign) {
    shared_.pages.update(page, with_pin);
    return true;
  }
  if (word.where() != state::untouched) return false;
  // Also of a fresh block: the child of a fork opens the locks of used blocks, and forgets the pins of other threads.
  shared_.blocks.note_use(block_of(page));
  block& holder = shared_.blocks.holding(page);
  const lock_guard guard(holder.lock);
  if (holder.kind == block_kind::guarded) return false;
  fill_guarded(shared_, {page, 1});
  // A page that the kernel has filled stays when the block is closed; every other one in it becomes guarded. A page
  // that the kernel does not fill, as it may only be read, is filled by us, in a block that is closed now.
  bool filled = holder.kind == block_kind::fresh || shared_.space.populate({page, 1}, true) == 0;
  if (!filled) shared_.space.query_filled({page, 1}, {&filled, 1});
  if (!filled && close_block(shared_, block_of(page))) return false;
  shared_.pages.update(page, with_pin);
  return true;
}

void page_pins::unpin(page_id page) {
  shared_.pages.update(page, [](page_word word) {
    FAR_CHECK(word.pins() > 0, "a page is unpinned as often as it was pinned");
    return word.with_pins(word.pins() - 1);
  });
}

}  // namespace far::engine
