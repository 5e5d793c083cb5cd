#include "engine/hinted_use.h"

namespace far::engine {

prospect hinted_use::expect(page_id page, bool write, bool by_scan) {
  const page_word word = pages_.load(page);
  if (word.where() == state::lost || word.where() == state::foreign) return prospect::lost;
  if (word.where() == state::untouched) {
    // The kernel fills the pages of an open block. Without its lock: a signal's handler may come in between, and touch
    // memory of the same block.
    const block& holder = blocks_.holding(page);
    if (holder.kind != block_kind::open) return prospect::untouched;
    if (by_scan) return prospect::ready;
    pages_.uses.note(page, true);
    if (holder.kind != block_kind::open) pages_.uses.erase(page);  // as below
    return prospect::ready;
  }
  if (word.where() != state::resident || (write && !word.dirty())) return prospect::missing;
  if (by_scan) return prospect::ready;
  pages_.uses.note(page, word.dirty());
  // Perhaps the evictor has claimed it, and erased the mark, before it was made.
  if (pages_.load_in_order(page).where() != state::resident) pages_.uses.erase(page);
  return prospect::ready;
}

void hinted_use::set_eviction_priority(page_id page, unsigned priority) {
  page_word word = pages_.load(page);
  while (word.eviction_priority() != priority) {
    if (pages_.transition(page, word, word.with_eviction_priority(priority))) return;
  }
}

}  // namespace far::engine
