// What a fiber, or an OS thread outside fibers, holds in its scopes (DESIGN.md, section 6; docs/heap.md).
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "far/detail/word.h"

namespace far::detail {

inline constexpr std::uint64_t no_page = ~std::uint64_t{0};

// The pages that its owner may hold pointers into (as address / page size). The owner appends to the log with plain
// stores; evictor and evacuator read it after a process-wide fence. Everything else is the owner's alone:
//
//     words   words that were dereferenced in the open scopes, in a small table without chains: the fast path. Valid
//             while their stamp is the current one, which changes whenever a scope ends
//     slots   pages in the log, in a small table without chains
//     others  those whose slot another page has
class record {
 public:
  static constexpr std::size_t word_count = 512;
  static constexpr std::size_t slot_count = 64;
  static constexpr std::size_t chunk_entries = 63;

  record();
  ~record();
  record(const record&) = delete;
  record& operator=(const record&) = delete;

  // Whether this word was dereferenced in a scope that is still open, so that its object is where the word says, held.
  [[nodiscard]] bool knows(std::uint64_t word_value) const {
    return words_[index_of(word_value)] == (word_value ^ stamp_);
  }
  // Requires: its page is held.
  void know(std::uint64_t word_value) { words_[index_of(word_value)] = word_value ^ stamp_; }

  [[nodiscard]] bool is_held(std::uint64_t page) const { return slots_[page % slot_count] == page; }

  // Holds the page from here until the log is cut back. Look at the page's state after this, not before.
  void hold(std::uint64_t page) {
    std::uint64_t& slot = slots_[page % slot_count];
    if (slot == page) return;
    if (slot == no_page) [[likely]] {
      slot = page;
    } else if (!remember(page)) {
      return;
    }
    append(page);
  }

  [[nodiscard]] std::size_t held() const { return count_.load(std::memory_order_relaxed); }

  // Lets go of all but the first `count` entries.
  void cut_back(std::size_t count) {
    const std::size_t now = held();
    if (now == count) return;
    // What was done to the pages happened before they are let go of.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (now - count > 1 || !forget_in_slots(now - 1)) [[unlikely]]
      forget_down_to(count);
    count_.store(count, std::memory_order_release);
    stamp_ = std::rotl(++round_ % stamps, stamp_shift);
    if (round_ % stamps == 0) [[unlikely]]
      forget_words();
  }

  // For evictor and evacuator, after the fence: calls `seen` with each page. The owner may be at work meanwhile.
  template <typename Seen>
  void for_each(Seen seen) const {
    const std::size_t count = count_.load(std::memory_order_acquire);
    const chunk* in = &first_;
    for (std::size_t i = 0; i < count && in != nullptr; ++i) {
      seen(in->pages[i % chunk_entries].load(std::memory_order_relaxed));
      if (i % chunk_entries == chunk_entries - 1) in = in->next.load(std::memory_order_acquire);
    }
  }

  // How many scopes are open: a counter of the fiber's (fiber::identity), because it decides its priority.
  std::uint32_t* depth = nullptr;
  record* next_free = nullptr;  // the registry's

 private:
  // Entry i of the log is in place i % chunk_entries of chunk i / chunk_entries. Chunks stay until the record is
  // destroyed.
  struct chunk {
    std::atomic<std::uint64_t> pages[chunk_entries];
    std::atomic<chunk*> next{nullptr};
    chunk* previous = nullptr;
  };

  // A stamp takes the bits that are 0 in every word: 61 to 63, and 0 to 3.
  static constexpr std::uint64_t stamps = 128;
  static constexpr int stamp_shift = 61;
  [[nodiscard]] static std::size_t index_of(std::uint64_t word_value) { return word_value / 64 % word_count; }

  void append(std::uint64_t page) {
    const std::size_t at = held();
    if (at >= chunk_entries) return append_further(page, at);
    first_.pages[at].store(page, std::memory_order_relaxed);
    count_.store(at + 1, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  // Removes an entry of the log from the tables, if it is in the first chunk and has a slot.
  [[nodiscard]] bool forget_in_slots(std::size_t at) {
    if (at >= chunk_entries) return false;
    const std::uint64_t page = first_.pages[at].load(std::memory_order_relaxed);
    std::uint64_t& slot = slots_[page % slot_count];
    if (slot != page) return false;
    slot = no_page;
    return true;
  }
  void forget_down_to(std::size_t count);
  [[nodiscard]] std::uint64_t further_entry(std::size_t at);
  void append_further(std::uint64_t page, std::size_t at);
  [[nodiscard]] bool remember(std::uint64_t page);
  void forget_remembered(std::uint64_t page);
  void grow();
  void forget_words();

  std::uint64_t stamp_ = 0;
  std::uint64_t round_ = 0;
  std::uint64_t words_[word_count];
  std::uint64_t slots_[slot_count];
  std::atomic<std::size_t> count_{0};
  chunk first_;
  chunk* last_ = &first_;  // the chunk of the last entry, or of the one before a chunk's end
  // Open addressing, never more than half full.
  std::uint64_t* others_ = nullptr;
  std::size_t others_capacity_ = 0;
  std::size_t others_count_ = 0;
};

// The record of whoever runs on this thread now, or nullptr when it has none yet. Kept by the fibers' workers.
extern constinit thread_local record* record_here;

}  // namespace far::detail
