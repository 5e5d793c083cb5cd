// The pages that a fiber, or an OS thread outside fibers, holds in its scopes (docs/heap.md).
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "far/detail/api.h"
#include "far/detail/word.h"

namespace far::detail {

// The pages that its owner may hold pointers into. The owner appends to the log with plain stores; evictor and
// evacuator read it after a process-wide fence. Everything else is the owner's alone:
//
//     words   words that were dereferenced in the open scopes, in a small table without chains: the fast path. Valid
//             while their stamp is the current one, which changes whenever a scope ends
//     slots   pages in the log, in a small table without chains. Valid while their stamp is that of the outermost scope
//     others  those whose slot another page has
//
// The first page in the log is in neither table. Pages are named by their numbers: address / page size.
class FAR_API hazard_log {
 public:
  static constexpr std::size_t word_count = 512;
  static constexpr std::size_t slot_count = 64;
  static constexpr std::size_t chunk_entries = 63;

  hazard_log();
  ~hazard_log();
  hazard_log(const hazard_log&) = delete;
  hazard_log& operator=(const hazard_log&) = delete;

  // Whether this word was dereferenced in a scope that is still open, so that its object is where the word says, held.
  [[nodiscard]] bool knows(std::uint64_t word_value) const {
    return words_[index_of(word_value)] == (word_value ^ stamp_);
  }
  // Requires: its page is held.
  void know(std::uint64_t word_value) { words_[index_of(word_value)] = word_value ^ stamp_; }

  // Holds the page from here until the log is cut back. Look at the page's state after this, not before.
  void hold(std::uint64_t page) {
    if (!hold_at_once(page)) hold_further(page);
  }
  // The same, where it takes a few instructions; otherwise returns false.
  [[nodiscard]] bool hold_at_once(std::uint64_t page) {
    const std::size_t at = held();
    // Most scopes hold one page: the first needs no slot.
    if (at != 0) {
      if (first_.pages[0].load(std::memory_order_relaxed) == page) return true;
      std::uint64_t& slot = slots_[page % slot_count];
      if (slot == (page ^ outer_stamp_)) return true;
      if (is_held(slot) || at >= chunk_entries) [[unlikely]]
        return false;
      slot = page ^ outer_stamp_;
    }
    first_.pages[at].store(page, std::memory_order_relaxed);
    count_.store(at + 1, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return true;
  }

  [[nodiscard]] std::size_t held() const { return count_.load(std::memory_order_relaxed); }
  // Is above 0 while scopes are open in which something was dereferenced.
  [[nodiscard]] const std::atomic<std::size_t>& held_count() const { return count_; }

  // Lets go of all but the first `count` entries.
  void cut_back(std::size_t count) {
    const std::size_t now = held();
    if (now == count) return;
    // Accesses to the pages happen before the pages are released.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    // The outermost scope's end makes all slots invalid at once.
    const bool at_once = count == 0 && is_simple_;
    if (!at_once) [[unlikely]]
      forget_down_to(count);
    count_.store(count, std::memory_order_release);
    if (++round_ == stamps) [[unlikely]]
      start_again();
    stamp_ = std::rotl(round_, stamp_shift);
    if (at_once) [[likely]]
      outer_stamp_ = round_ << slot_stamp_shift;
  }

  // From begin_work() to end_work() the owner changes headers in its pages by the heap's own protocols, which rely on
  // their staying. At other times they may leave when the system is hard pressed: they come back to the same place.
  void begin_work() {
    work_.store(work_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  void end_work() { work_.store(work_.load(std::memory_order_relaxed) - 1, std::memory_order_release); }
  // For the evictor, after the fence.
  [[nodiscard]] bool is_working() const { return work_.load(std::memory_order_acquire) != 0; }

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

  hazard_log* next_free = nullptr;  // the registry's

 private:
  // Entry i of the log is in place i % chunk_entries of chunk i / chunk_entries. Chunks stay until the hazard log is
  // destroyed.
  struct chunk {
    std::atomic<std::uint64_t> pages[chunk_entries];
    std::atomic<chunk*> next{nullptr};
    chunk* previous = nullptr;
  };

  // A stamp takes the bits that are 0 in every word: 61 to 63, and 0 to 3. The last one is never used: tables that are
  // filled with it hold nothing.
  static constexpr std::uint64_t stamps = 127;
  static constexpr int stamp_shift = 61;
  static constexpr std::uint64_t nothing = ~std::uint64_t{0};
  [[nodiscard]] static std::size_t index_of(std::uint64_t word_value) { return word_value / 64 % word_count; }
  // In slots stamps are above the page's number.
  static constexpr int slot_stamp_shift = 40;
  [[nodiscard]] bool is_held(std::uint64_t slot) const { return (slot ^ outer_stamp_) >> slot_stamp_shift == 0; }

  void hold_further(std::uint64_t page);
  [[nodiscard]] chunk* chunk_of(std::size_t at);
  void forget_down_to(std::size_t count);
  [[nodiscard]] std::uint64_t further_entry(std::size_t at);
  [[nodiscard]] bool remember(std::uint64_t page);
  void forget_remembered(std::uint64_t page);
  void grow();
  void start_again();

  std::uint64_t stamp_ = 0;
  std::uint64_t outer_stamp_ = 0;
  std::uint64_t round_ = 0;
  std::uint64_t words_[word_count];
  std::uint64_t slots_[slot_count];
  std::atomic<std::size_t> count_{0};
  std::atomic<std::uint32_t> work_{0};
  chunk first_;
  chunk* last_ = &first_;  // the chunk of the last entry, or of the one before a chunk's end
  // Page numbers; open addressing, never more than half full.
  std::uint64_t* others_ = nullptr;
  std::size_t others_capacity_ = 0;
  std::size_t others_count_ = 0;
  bool is_simple_ = true;  // all that is held is in the first chunk, and in a slot
};

// The hazard log of the fiber or thread that runs here now, or nullptr when it has none yet. Kept by the fibers'
// workers. The model makes each read one instruction through the thread's segment register. By the other models a
// shared library calls for the variable's address, and the compiler may keep that while the fiber goes on on another
// thread.
FAR_API __attribute__((tls_model("initial-exec"))) extern constinit thread_local hazard_log* hazard_log_here;

}  // namespace far::detail
