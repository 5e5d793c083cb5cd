// The kinds of misses, by the state of the page before anything is done about it.
#pragma once

#include "engine/page_view.h"
#include "pager/miss_observer.h"

namespace far::pager {

// One load without a lock: other threads may be at work on the page, so the result describes a moment in the past.
[[nodiscard]] inline observed_miss::kind kind_of_miss(const engine::page_view& pages, platform::page_id page,
                                                      bool write) {
  const engine::state where = pages.words().load(page).where();
  if (where == engine::state::untouched) return observed_miss::kind::first_touch;
  if (!write) return observed_miss::kind::read;
  return where == engine::state::resident ? observed_miss::kind::protection : observed_miss::kind::write;
}

}  // namespace far::pager
