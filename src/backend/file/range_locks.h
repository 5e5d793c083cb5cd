// Turns for transfers that rewrite a larger range of the file than the bytes that they change.
//
// A write of part of an aligned block reads the block, changes it and writes it back. Two such writes to different
// bytes of one block must take turns, also across channels, or one of them would be lost.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace far::backend {

// Thread-safe. Never waits: a caller that does not get its turn tries again.
class range_locks {
 public:
  // Takes the bytes [begin, end) of the file, or nothing. Requires: they touch at most `stripes` pages.
  [[nodiscard]] bool try_lock(std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t first = begin / page_bytes;
    for (std::uint64_t page = first; page < pages_for(end); ++page) {
      if (!held_[page % stripes].exchange(true, std::memory_order_acquire)) continue;
      release(first, page);
      return false;
    }
    return true;
  }

  // Requires: try_lock(begin, end) returned true.
  void unlock(std::uint64_t begin, std::uint64_t end) { release(begin / page_bytes, pages_for(end)); }

 private:
  static constexpr std::size_t stripes = 256;

  void release(std::uint64_t first_page, std::uint64_t end_page) {
    for (std::uint64_t page = first_page; page < end_page; ++page) {
      held_[page % stripes].store(false, std::memory_order_release);
    }
  }

  std::array<std::atomic<bool>, stripes> held_{};
};

}  // namespace far::backend
