#include "engine/page_discard.h"

namespace far::engine {
namespace {

// The pages have been dropped.
void forget(core_for_ranges& shared, page_range range) {
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

}  // namespace

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

void finish_discard(core_for_ranges& shared, page_id page) {
  if (drop_page(shared, page)) return forget(shared, {page, 1});
  // Locked memory keeps its bytes.
  shared.pages.update(page, [](page_word word) { return word.with_state(state::resident); });
  shared.admit(page, temperature::warm);
}

void claimed_pages::add(page_id page) {
  if (count_ > 0 && runs_[count_ - 1].end() == page) {
    ++runs_[count_ - 1].count;
    return;
  }
  if (count_ == most_runs) finish();
  runs_[count_++] = {page, 1};
}

void claimed_pages::finish() {
  for (std::size_t done = 0; done < count_;) {
    const std::size_t dropped = shared_.space.drop({runs_.data() + done, count_ - done});
    for (std::size_t i = done; i < done + dropped; ++i) forget(shared_, runs_[i]);
    done += dropped;
    if (done == count_) break;
    // A page of this run is locked, and those before it may be gone, so each is asked for alone.
    const page_range refused = runs_[done++];
    for (page_id page = refused.first; page < refused.end(); ++page) finish_discard(shared_, page);
  }
  count_ = 0;
}

}  // namespace far::engine
