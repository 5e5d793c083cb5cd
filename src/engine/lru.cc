#include "engine/lru.h"

#include <algorithm>

namespace far::engine {

void lru::admit(page_id page, temperature how) {
  ++size_;
  if (++came_ > std::max(least_stretch_pages, size_ / lists_.size())) let_time_pass();
  if (how != temperature::cold) return list_of_age(0).push_back(page);
  std::size_t oldest = lists_.size() - 1;
  while (oldest > 0 && list_of_age(oldest).empty()) --oldest;
  list_of_age(oldest).push_front(page);
}

// From the oldest list to the newest. A page that was used since it was queued moves to the list of its last use.
std::size_t lru::select(std::span<page_id> victims) {
  std::size_t found = 0;
  for (std::size_t age = lists_.size(); age-- > 0 && found < victims.size();) {
    page_queue& list = list_of_age(age);
    // Pages that are put back into this very list are not looked at twice.
    for (std::size_t looked_at = list.size(); looked_at > 0 && found < victims.size(); --looked_at) {
      const page_id page = list.pop_front();
      bool used_now = false;
      page_word word = pages_.load(page);
      const bool is_here = word.where() == state::resident;
      const std::size_t last_used = is_here ? pages_.uses.age(page) : reference_marks::never;
      pages_.update(page, [&](page_word before) {
        used_now = is_here && before.accessed();
        const bool stays = used_now || last_used < age;
        return before.with_accessed(false).with_queued(stays);
      });
      if (used_now) {
        list_of_age(0).push_back(page);
      } else if (last_used < age) {
        list_of_age(last_used).push_back(page);
      } else {
        victims[found++] = page;
        --size_;
      }
    }
  }
  return found;
}

// The ring turns: the oldest list becomes the newest, and what was in it the beginning of the next oldest.
void lru::let_time_pass() {
  came_ = 0;
  const std::size_t oldest = lists_.size() - 1;
  list_of_age(oldest - 1).take_to_front(list_of_age(oldest));
  newest_ = (newest_ + 1) % lists_.size();
  pages_.uses.advance();
}

}  // namespace far::engine
