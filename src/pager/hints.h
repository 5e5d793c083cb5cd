// The runtime's side of far/hint.h: where hints look, and what they do when there is something to do.
#pragma once

#include "far/hint.h"

namespace far::pager {

class pager;

// From now on hints of the whole process are about this pager's far heap, unless they are about another's already.
void serve_hints(pager& by);
// Before the pager ends. Requires: no thread is in a hint about its far heap.
void stop_serving_hints(const pager& by);

// What far_hint_find_view() returns wherever a door defines it: from the program's start on, empty while nobody serves.
[[nodiscard]] const far_hint_view& hint_view() noexcept;

// Calls `seen` with every line whose hint has reached the runtime.
template <typename Seen>
void for_each_hint_site(Seen seen);

// The first of them; each names the next.
[[nodiscard]] const far_hint_site* first_hint_site() noexcept;

template <typename Seen>
void for_each_hint_site(Seen seen) {
  for (const far_hint_site* site = first_hint_site(); site != nullptr; site = site->next) seen(*site);
}

}  // namespace far::pager
