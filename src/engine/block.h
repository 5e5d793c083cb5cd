// A block is 2 MiB of the far heap. Its kind says who fills its pages on first touch.
//
// Fresh: nothing allocated there. Open: the kernel fills the pages and the program pays nothing for us (I8); because we
// do not see which pages are touched, all that are allocated count against the budget. Guarded: every access to a page
// that is not mapped is reported to us, and the words of its pages are exact. A block is opened when the allocation
// fits the budget, becomes guarded when eviction first reaches it, and is fresh again once all of it is freed.
#pragma once

#include <atomic>
#include <bit>
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
  // Fresh or open, though the kernel may still report accesses to some of its pages: it had no room for the mapping
  // that it needs to end a guard.
  bool partly_guarded FAR_GUARDED_BY(lock) = false;
  std::uint16_t allocated_pages FAR_GUARDED_BY(lock) = 0;
};

using block_id = std::uint64_t;

[[nodiscard]] constexpr block_id block_of(page_id page) {
  return page / block_pages;
}
[[nodiscard]] constexpr page_range pages_of(block_id id) {
  return {id * block_pages, block_pages};
}

class block_table {
 public:
  explicit block_table(std::uint64_t pages)
      : count_((pages + block_pages - 1) / block_pages),
        blocks_(reinterpret_cast<block*>(platform::map_local(count_ * sizeof(block)))),
        used_(reinterpret_cast<used_word*>(platform::map_local(used_words() * sizeof(used_word)))) {}
  ~block_table() {
    platform::unmap_local(reinterpret_cast<std::byte*>(blocks_), count_ * sizeof(block));
    platform::unmap_local(reinterpret_cast<std::byte*>(used_), used_words() * sizeof(used_word));
  }
  block_table(const block_table&) = delete;
  block_table& operator=(const block_table&) = delete;

  // Before anything else is done with the block.
  void note_use(block_id id) {
    used_word& word = used_[id / word_bits];
    const std::uint64_t bit = std::uint64_t{1} << id % word_bits;
    if ((word.load(std::memory_order_relaxed) & bit) == 0) word.fetch_or(bit);
  }
  // Calls body(block_id) for each block that was ever used, in order. It does not look at the others: in a heap of many
  // terabytes a program may use only the first blocks and the last ones.
  template <typename Body>
  void for_each_used(const Body& body) const {
    for (std::uint64_t i = 0; i < used_words(); ++i) {
      for (std::uint64_t bits = used_[i].load(); bits != 0; bits &= bits - 1) {
        body(i * word_bits + static_cast<unsigned>(std::countr_zero(bits)));
      }
    }
  }

  // The first of these from `from` on; count() or more: there is none.
  [[nodiscard]] block_id next_used(block_id from) const {
    for (std::uint64_t i = from / word_bits; i < used_words(); ++i) {
      const std::uint64_t rest = i == from / word_bits ? ~std::uint64_t{0} << from % word_bits : ~std::uint64_t{0};
      const std::uint64_t bits = used_[i].load() & rest;
      if (bits != 0) return i * word_bits + static_cast<unsigned>(std::countr_zero(bits));
    }
    return count_;
  }

  [[nodiscard]] block_id count() const { return count_; }
  [[nodiscard]] block& at(block_id id) const { return blocks_[id]; }
  [[nodiscard]] block& holding(page_id page) const { return blocks_[block_of(page)]; }

 private:
  using used_word = std::atomic<std::uint64_t>;
  static constexpr unsigned word_bits = 64;

  [[nodiscard]] std::uint64_t used_words() const { return (count_ + word_bits - 1) / word_bits; }

  block_id count_;
  block* blocks_;    // zeroed memory is a table of fresh blocks
  used_word* used_;  // a bit a block
};

}  // namespace far::engine
