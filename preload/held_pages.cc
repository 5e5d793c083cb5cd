#include "preload/held_pages.h"

#include <algorithm>

namespace far::preload {

void held_pages::hold(const std::byte* page, pid_t thread, world& outside) {
  if (all_.size() >= look_at_) release_ended(outside);
  if (std::none_of(all_.begin(), all_.end(), [page](const held_page& each) { return each.page == page; })) {
    outside.pin(page);
  }
  note(page, thread);
}

void held_pages::release_ended(world& outside) {
  const auto gone = std::partition(all_.begin(), all_.end(),
                                   [&outside](const held_page& each) { return !outside.has_ended(each.thread); });
  const auto before = [](const held_page& a, const held_page& b) { return a.page < b.page; };
  std::sort(all_.begin(), gone, before);
  std::sort(gone, all_.end(), before);
  for (auto each = gone; each != all_.end(); ++each) {
    const bool seen = each != gone && (each - 1)->page == each->page;
    if (!seen && !std::binary_search(all_.begin(), gone, *each, before)) outside.unpin(each->page);
  }
  all_.erase(gone, all_.end());
  look_at_ = std::max(least_before_look, 2 * all_.size());
}

}  // namespace far::preload
