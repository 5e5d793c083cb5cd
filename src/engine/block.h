// Blocks: who fills the pages of 2 MiB of the far heap on first touch.
//
// Fresh: nothing allocated there. Open: the kernel fills the pages and the program pays nothing for us (I8); because we
// do not see which pages are touched, all that are allocated count against the budget. Guarded: every access to a page
// that is not mapped is reported to us, and the words of its pages are exact. A block is opened when the allocation
// fits the budget, becomes guarded when eviction first reaches it, and is fresh again once all of it is freed.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/spin_lock.h"
#include "engine/residency.h"
#include "platform/local_memory.h"

namespace far::engine {

inline constexpr std::size_t block_pages = 512;

enum class block_kind : std::uint8_t { fresh, open, guarded };

struct block {
  spin_lock lock;  // held to change kind or allocated, and while the change is carried out
  std::atomic<block_kind> kind{block_kind::fresh};
  std::uint16_t allocated_pages = 0;
};

using block_id = std::uint64_t;

[[nodiscard]] constexpr block_id block_of(page_id page) {
  return page / block_pages;
}
[[nodiscard]] constexpr page_range pages_of(block_id which) {
  return {which * block_pages, block_pages};
}

class block_table {
 public:
  explicit block_table(std::uint64_t pages)
      : count_((pages + block_pages - 1) / block_pages),
        blocks_(reinterpret_cast<block*>(platform::map_local(count_ * sizeof(block)))) {}
  ~block_table() { platform::unmap_local(reinterpret_cast<std::byte*>(blocks_), count_ * sizeof(block)); }
  block_table(const block_table&) = delete;
  block_table& operator=(const block_table&) = delete;

  // Blocks from here on have never been used.
  [[nodiscard]] block_id used_end() const { return used_end_.load(std::memory_order_acquire); }
  void note_use(block_id which) {
    block_id end = used_end_.load(std::memory_order_relaxed);
    while (which >= end && !used_end_.compare_exchange_weak(end, which + 1)) {
    }
  }

  [[nodiscard]] block_id count() const { return count_; }
  [[nodiscard]] block& at(block_id which) const { return blocks_[which]; }
  [[nodiscard]] block& holding(page_id page) const { return blocks_[block_of(page)]; }

 private:
  block_id count_;
  std::atomic<block_id> used_end_{0};
  block* blocks_;  // zeroed memory is a table of fresh blocks
};

}  // namespace far::engine
