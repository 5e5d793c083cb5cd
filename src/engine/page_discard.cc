#include "engine/page_discard.h"

namespace far::engine {

// Each transition may lose against another thread; `word` then has the page's new state, and the loop decides again. A
// page in Evicting or Fetching belongs to another thread, for which the caller has to wait.
bool begin_discard(core_for_ranges& shared, page_id page, bool* unmap) {
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

bool drop_page(core_for_ranges& shared, page_id page) {
  const page_range single{page, 1};
  if (shared.space.drop({&single, 1}) == 1) return true;
  bool filled = true;
  shared.space.query_filled(single, {&filled, 1});
  return !filled;
}

// One call drops the range. Only if it contains locked memory, which the kernel refuses, is each page dropped alone.
void finish_discard(core_for_ranges& shared, page_range range) {
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

}  // namespace far::engine
