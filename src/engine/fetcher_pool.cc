#include "engine/fetcher_pool.h"

namespace far::engine {

// The analysis does not know which lock the caller gets.
fetcher* fetcher_pool::try_lock(std::size_t first) const noexcept FAR_UNCHECKED_LOCKING {
  for (const bool needs_room : {true, false}) {
    for (std::size_t i = 0; i < fetchers_.size(); ++i) {
      fetcher& candidate = *fetchers_[(first + i) % fetchers_.size()];
      if ((candidate.has_room() || !needs_room) && candidate.lock.try_lock()) return &candidate;
    }
  }
  return nullptr;
}

fetcher& fetcher_pool::lock(std::size_t first) const noexcept {
  backoff waiting;
  while (true) {
    fetcher* const locked = try_lock(first);
    if (locked != nullptr) return *locked;
    waiting.pause();
  }
}

std::size_t fetcher_pool::free_flights() const noexcept {
  std::size_t sum = 0;
  for (const fetcher* one : fetchers_) sum += one->free_flights();
  return sum;
}

}  // namespace far::engine
