// The pages that must stay in place during a stretch of the runtime's own work (hazard pointers; Michael, 2004).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace far::heap {

// Dereferences rely on grace periods (grace_periods.h). This is for work on objects' headers, which may happen outside
// scopes. During it the pages must not leave under any circumstances, because headers in them are locked. The owner
// appends to the log with plain stores; evictor and evacuator read it after a process-wide fence. Everything else is
// the owner's alone:
//
//     slots   pages in the log, in a small table without chains. Valid while their stamp is the current one
//     others  those whose slot another page has, once the log has outgrown its first chunk: work that needs a few pages
//             needs no memory, because pointers are moved and destroyed by what must not throw
//
// The first page in the log is in neither table. Pages are named by their numbers: address / page size.
class hazard_log {
 public:
  static constexpr std::size_t slot_count = 64;
  static constexpr std::size_t chunk_entries = 63;

  hazard_log();
  ~hazard_log();
  hazard_log(const hazard_log&) = delete;
  hazard_log& operator=(const hazard_log&) = delete;

  // Holds the page from here until the log is cut back. Look at the page's state after this, not before.
  void hold(std::uint64_t page) {
    const std::size_t at = held();
    // Most work needs one page: the first needs no slot.
    if (at != 0) {
      if (first_.pages[0].load(std::memory_order_relaxed) == page) return;
      std::uint64_t& slot = slots_[page % slot_count];
      if (slot == (page ^ stamp_)) return;
      if (is_held(slot) || at >= chunk_entries) [[unlikely]]
        return hold_further(page);
      slot = page ^ stamp_;
    }
    first_.pages[at].store(page, std::memory_order_relaxed);
    count_.store(at + 1, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  [[nodiscard]] std::size_t held() const { return count_.load(std::memory_order_relaxed); }

  // Releases all but the first `count` entries.
  void cut_back(std::size_t count) {
    const std::size_t now = held();
    if (now == count) return;
    // Accesses to the pages happen before the pages are released.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    // When nothing is held any more all slots become invalid at once.
    const bool at_once = count == 0 && is_simple_;
    if (!at_once) [[unlikely]]
      forget_down_to(count);
    count_.store(count, std::memory_order_release);
    if (!at_once) return;
    stamp_ += std::uint64_t{1} << stamp_shift;
    if (stamp_ == last_stamp) [[unlikely]]
      start_again();
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

 private:
  // Entry i of the log is in place i % chunk_entries of chunk i / chunk_entries. Chunks stay until the hazard log is
  // destroyed.
  struct chunk {
    std::atomic<std::uint64_t> pages[chunk_entries];
    std::atomic<chunk*> next{nullptr};
    chunk* previous = nullptr;
  };

  // In slots stamps are above the page's number. The last one is never used: slots that are filled with it hold
  // nothing.
  static constexpr int stamp_shift = 40;
  static constexpr std::uint64_t nothing = ~std::uint64_t{0};
  static constexpr std::uint64_t last_stamp = nothing >> stamp_shift << stamp_shift;
  [[nodiscard]] bool is_held(std::uint64_t slot) const { return (slot ^ stamp_) >> stamp_shift == 0; }

  void hold_further(std::uint64_t page);
  [[nodiscard]] chunk* chunk_of(std::size_t at);
  void forget_down_to(std::size_t count);
  [[nodiscard]] std::uint64_t further_entry(std::size_t at);
  [[nodiscard]] bool remember(std::uint64_t page);
  [[nodiscard]] bool is_in_first_chunk(std::uint64_t page) const;
  void remember_first_chunk();
  void forget_remembered(std::uint64_t page);
  void grow();
  void start_again();

  std::uint64_t stamp_ = 0;
  std::uint64_t slots_[slot_count];
  std::atomic<std::size_t> count_{0};
  chunk first_;
  chunk* last_ = &first_;  // the chunk of the last entry, or of the one before a chunk's end
  // Page numbers; open addressing, never more than half full. Empty, or all pages of the log but the first that have no
  // slot.
  std::uint64_t* others_ = nullptr;
  std::size_t others_capacity_ = 0;
  std::size_t others_count_ = 0;
  bool is_simple_ = true;  // all that is held is in the first chunk, and `others` is empty
};

// A stretch of work in which pages are held, perhaps within another.
class holding {
 public:
  explicit holding(hazard_log& log) : log_(log), before_(log.held()) {}
  ~holding() { log_.cut_back(before_); }
  holding(const holding&) = delete;
  holding& operator=(const holding&) = delete;

 private:
  hazard_log& log_;
  std::size_t before_;
};

}  // namespace far::heap
