#include "preload/held_pages.h"

#include <algorithm>

namespace far::preload {

void held_pages::hold(const std::byte* page, pid_t thread, world& outside) {
  if (all_.size() >= look_at_) release_ended(outside);
  if (std::none_of(all_.begin(), all_.end(), [page](const held_page& held) { return held.page == page; })) {
    outside.pin(page);
  }
  note(page, thread);
}

void held_pages::release_ended(world& outside) {
  const auto gone = std::partition(all_.begin(), all_.end(),
                                   [&outside](const held_page& held) { return !outside.has_ended(held.thread); });
  const auto before = [](const held_page& a, const held_page& b) { return a.page < b.page; };
  std::sort(all_.begin(), gone, before);
  std::sort(gone, all_.end(), before);
  for (auto held = gone; held != all_.end(); ++held) {
    const bool seen = held != gone && (held - 1)->page == held->page;
    if (!seen && !std::binary_search(all_.begin(), gone, *held, before)) outside.unpin(held->page);
  }
  all_.erase(gone, all_.end());
  look_at_ = std::max(least_before_look, 2 * all_.size());
}

}  // namespace far::preload
