// The pages that some thread of the program may not read, whatever is in them: PROT_NONE, a guard, a protection key.
// For reads that do not touch the page, so that the kernel does not look (object_copies.h). A bit a page, in local
// memory that is there only for ranges which were protected so.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/units.h"
#include "platform/address_space.h"
#include "platform/local_memory.h"

namespace far::pager {

class unreadable_pages {
 public:
  [[nodiscard]] static std::size_t table_bytes(std::uint64_t pages) {
    return static_cast<std::size_t>(pages / bits + 1) * sizeof(std::uint64_t);
  }
  explicit unreadable_pages(std::uint64_t pages)
      : bytes_(table_bytes(pages)),
        words_(reinterpret_cast<std::atomic<std::uint64_t>*>(platform::map_local(bytes_))) {}
  ~unreadable_pages() { platform::unmap_local(reinterpret_cast<std::byte*>(words_), bytes_); }
  unreadable_pages(const unreadable_pages&) = delete;
  unreadable_pages& operator=(const unreadable_pages&) = delete;

  [[nodiscard]] bool contains(platform::page_id page) const {
    return any_.load(std::memory_order_acquire) &&
           (words_[page / bits].load(std::memory_order_acquire) >> page % bits & 1) != 0;
  }

  // One call at a time.
  void set(platform::page_range range, bool unreadable) {
    if (!unreadable && !any_.load(std::memory_order_relaxed)) return;
    any_.store(true, std::memory_order_release);
    for (platform::page_id page = range.first; page < range.end();) {
      const std::uint64_t from = page % bits;
      const std::uint64_t count = std::min<std::uint64_t>(bits - from, range.end() - page);
      const std::uint64_t mask = (count == bits ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << from;
      std::atomic<std::uint64_t>& word = words_[page / bits];
      const std::uint64_t before = word.load(std::memory_order_relaxed);
      const std::uint64_t after = unreadable ? before | mask : before & ~mask;
      if (after != before) word.store(after, std::memory_order_release);
      page += count;
    }
  }

 private:
  static constexpr std::uint64_t bits = 64;

  const std::size_t bytes_;
  std::atomic<std::uint64_t>* const words_;
  std::atomic<bool> any_{false};
};

}  // namespace far::pager
