// Which pages should lie on the same servers (backend::affinity), because questions are about several of them at once.
// A byte a page of local memory, where any has an affinity; a hint, which evictors read while the heap writes it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "engine/residency.h"
#include "platform/local_memory.h"

namespace far::engine {

class page_affinity {
 public:
  // `wanted`: otherwise no page ever has one.
  page_affinity(std::uint64_t pages, bool wanted)
      : bytes_(wanted ? pages : 0),
        of_(wanted ? reinterpret_cast<std::atomic<backend::affinity>*>(platform::map_local(bytes_)) : nullptr) {}
  ~page_affinity() {
    if (of_ != nullptr) platform::unmap_local(reinterpret_cast<std::byte*>(of_), bytes_);
  }
  page_affinity(const page_affinity&) = delete;
  page_affinity& operator=(const page_affinity&) = delete;

  [[nodiscard]] backend::affinity of(page_id page) const {
    return of_ == nullptr ? backend::no_affinity : of_[page].load(std::memory_order_relaxed);
  }
  // From the next time on that they leave.
  void set(page_range pages, backend::affinity to) {
    if (of_ == nullptr) return;
    for (page_id page = pages.first; page < pages.first + pages.count; ++page) {
      // What is never written takes no memory.
      if (of(page) != to) of_[page].store(to, std::memory_order_relaxed);
    }
  }
  // How many of the pages, from the first on, have the affinity of the first. Requires: there is one.
  [[nodiscard]] std::size_t run_of(std::span<const page_id> pages) const {
    const auto differs = [&](page_id page) { return of(page) != of(pages.front()); };
    return static_cast<std::size_t>(std::ranges::find_if(pages, differs) - pages.begin());
  }

 private:
  static_assert(sizeof(std::atomic<backend::affinity>) == 1);
  std::size_t bytes_;
  std::atomic<backend::affinity>* of_;
};

}  // namespace far::engine
