// The priorities of tags (far/tag.h), of the pages that the evictor has looked at lately.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace far::heap {

inline constexpr unsigned priorities = 4;

// A page with a higher priority is passed over while pages with a lower one can leave in its place. How many of these
// there are is not counted, but estimated from the last looks: while they are at least one in `least_lower`, evictors
// look at no more than so many pages for each that leaves. Evictors count at the same time, and may lose a count.
class priorities_seen {
 public:
  // The evictor looks at a page with that priority. Returns whether it may leave.
  [[nodiscard]] bool may_leave(unsigned priority) {
    std::uint32_t lower = 0;
    std::uint32_t all = 0;
    for (unsigned i = 0; i < priorities; ++i) {
      const std::uint32_t seen = seen_[i].load(std::memory_order_relaxed) + (i == priority ? 1 : 0);
      if (i == priority) seen_[i].store(seen, std::memory_order_relaxed);
      if (i < priority) lower += seen;
      all += seen;
    }
    if (all >= window) forget_half();
    return lower * least_lower < all;
  }

  static constexpr std::uint32_t least_lower = 16;
  static constexpr std::uint32_t window = 512;  // older looks weigh less

 private:
  void forget_half() {
    for (std::atomic<std::uint32_t>& seen : seen_) {
      seen.store(seen.load(std::memory_order_relaxed) / 2, std::memory_order_relaxed);
    }
  }

  std::array<std::atomic<std::uint32_t>, priorities> seen_{};
};

}  // namespace far::heap
