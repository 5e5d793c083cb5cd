// The fetchers of threads and fibers that resolve their own misses. Each takes one for a moment.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/fetcher.h"
#include "platform/local_memory.h"

namespace far::engine {

class fetcher_pool {
 public:
  // Before the first miss.
  void add(fetcher& one) { fetchers_.push_back(&one); }

  // Locks a fetcher that nobody holds, beginning with number `first`; null when there is none. Prefers one that can
  // start something: those that are full still do for everything that needs no flight.
  [[nodiscard]] fetcher* try_lock(std::size_t first) const noexcept;
  // The same, and waits for one.
  [[nodiscard]] fetcher& lock(std::size_t first) const noexcept;

  [[nodiscard]] std::size_t free_flights() const noexcept;

 private:
  std::vector<fetcher*, platform::local_allocator<fetcher*>> fetchers_;
};

}  // namespace far::engine
