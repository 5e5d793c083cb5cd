#include "engine/two_queues.h"

namespace far::engine {

void two_queues::admit(page_id page, temperature how) {
  if (how == temperature::cold) return newcomers_.push_front(page);
  // Pages that cannot leave now must not stand among the newcomers: when all of them were like that, nothing else would
  // ever be offered.
  bool has_proved_itself = how == temperature::hot;
  pages_.update(page, [&has_proved_itself](page_word word) {
    has_proved_itself |= word.accessed();
    return word.with_accessed(false);
  });
  (has_proved_itself ? proven_ : newcomers_).push_back(page);
}

std::size_t two_queues::select(std::span<page_id> victims) {
  std::size_t found = 0;
  for (std::size_t looked_at = size(); looked_at > 0 && found < victims.size(); --looked_at) {
    const auto most_newcomers = static_cast<std::size_t>(static_cast<double>(size()) * newcomers_share_);
    const bool from_newcomers = proven_.empty() || newcomers_.size() > most_newcomers;
    const page_id page = (from_newcomers ? newcomers_ : proven_).pop_front();
    if (spare_if_used(pages_, page)) {
      proven_.push_back(page);
    } else {
      victims[found++] = page;
    }
  }
  return found;
}

}  // namespace far::engine
