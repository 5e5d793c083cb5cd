#include "engine/second_chance.h"

namespace far::engine {

void second_chance::admit(page_id page, temperature how) {
  if (how == temperature::cold) {
    queue_.push_front(page);
  } else {
    queue_.push_back(page);
  }
}

std::size_t second_chance::select(std::span<page_id> victims) {
  std::size_t found = 0;
  // Once round at most: most marks that are cleared stay clear, so the second pass finds victims.
  for (std::size_t looked_at = queue_.size(); looked_at > 0 && found < victims.size(); --looked_at) {
    const page_id page = queue_.pop_front();
    if (spare_if_used(pages_, page)) {
      queue_.push_back(page);
    } else {
      victims[found++] = page;
    }
  }
  return found;
}

}  // namespace far::engine
