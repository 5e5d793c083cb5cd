#include "engine/priority.h"

namespace far::engine {

void priority::admit(page_id page, temperature how) {
  page_queue& queue = queues_[pages_.load(page).eviction_priority()];
  how == temperature::cold ? queue.push_front(page) : queue.push_back(page);
}

std::size_t priority::size() const {
  std::size_t sum = 0;
  for (const page_queue& queue : queues_) sum += queue.size();
  return sum;
}

std::size_t priority::select(std::span<page_id> victims) {
  std::size_t found = 0;
  for (unsigned level = page_word::eviction_priorities; level-- > 0 && found < victims.size();) {
    found += select_of(level, victims.subspan(found));
  }
  return found;
}

// A page may have got another priority since it came into this queue. If it is a lower one it goes there; a higher one
// matters when the page comes in again.
std::size_t priority::select_of(unsigned level, std::span<page_id> victims) {
  page_queue& queue = queues_[level];
  std::size_t found = 0;
  // Twice round: a page that is spared once leaves before any page of a lower level.
  for (std::size_t looked_at = 2 * queue.size(); looked_at > 0 && !queue.empty() && found < victims.size();
       --looked_at) {
    const page_id page = queue.pop_front();
    const bool was_hinted = level != used_once && pages_.uses.take(page);
    bool stays = false;
    unsigned belongs_to = level;
    pages_.update(page, [&](page_word word) {
      belongs_to = std::min(level, word.eviction_priority());
      const bool spared = word.where() == state::resident && level != used_once && (was_hinted || word.accessed());
      stays = spared || belongs_to < level;
      return stays ? word.with_accessed(false) : word.with_queued(false);
    });
    if (stays) {
      queues_[belongs_to].push_back(page);
    } else {
      victims[found++] = page;
    }
  }
  return found;
}

}  // namespace far::engine
