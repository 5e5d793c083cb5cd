// Tracks the allocated slots of a backend, and finds adjacent free ones fast.
//
// A bitmap, 64 slots a word, under a tree of summaries. A summary holds, for its part of the bitmap, the lengths of the
// free runs at its beginning and its end, and of the longest run, as in the page allocator of the Go runtime ("Scaling
// the Go page allocator", Go proposal 35112). So one walk from the root to a word finds the lowest run of any length,
// or shows that there is none, however full the map is. A change climbs only as far as summaries really change.
//
// All memory is local and filled on first touch: 9 bytes for each 64 slots that were ever available.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "backend/backend.h"
#include "base/spin_lock.h"

namespace far::backend {

// The ENOSPC of backend::allocate(). Its message is short enough for std::string to hold it without allocating: the
// evicting thread may be inside malloc or a fault handler. The caller knows what it wanted to evict, and tells the
// user.
[[nodiscard]] inline far::error out_of_slots() {
  return {"far tier full", ENOSPC};
}

// Thread-safe. Every call holds a spin lock for some tens of nanoseconds (extend: for 0.1 ns a slot).
class slot_allocator {
 public:
  static constexpr std::uint64_t maximum_capacity_slots = std::uint64_t{1} << 36;

  // No slot is available until extend() is called. Requires: 0 < capacity_slots <= maximum_capacity_slots.
  explicit slot_allocator(std::uint64_t capacity_slots);
  ~slot_allocator();
  slot_allocator(const slot_allocator&) = delete;
  slot_allocator& operator=(const slot_allocator&) = delete;

  // Makes the slots from limit() up to `new_limit` available. Requires: limit() <= new_limit <= capacity().
  void extend(std::uint64_t new_limit);

  // Takes `count` adjacent available slots and returns the first; nothing when there is no such run. Slots that follow
  // the last allocation are preferred, so that pages evicted together lie together; then the lowest run, so that the
  // store stays compact. Requires: count > 0.
  [[nodiscard]] std::optional<slot_id> allocate(std::size_t count);

  // Takes exactly these slots when all of them are available; returns whether it did.
  [[nodiscard]] bool claim(slot_id first, std::size_t count);

  // Gives slots back. A slot that is not allocated stops the process: its next owner's bytes would be overwritten.
  void free(slot_id first, std::size_t count);

  // In the child of a fork, whose other threads are gone: every available slot is free; then some are claimed, one by
  // one; then it is a map again. Nothing else is called in between.
  void begin_again_in_child();
  void claim_in_child(slot_id slot);
  void end_claims_in_child();

  // Whether all (or none) of the slots are allocated. For checks.
  [[nodiscard]] bool all_allocated(slot_id first, std::size_t count) const;

  [[nodiscard]] std::uint64_t capacity() const { return capacity_slots_; }
  [[nodiscard]] std::uint64_t limit() const;
  [[nodiscard]] std::uint64_t used() const;
  // Whether so many of them are free, here and there, that shorter runs must do before more become available: else what
  // is written in runs and freed page by page, as by a key-value store, takes several times the room of its pages.
  [[nodiscard]] bool is_scattered() const;
  // How many available slots at the end, just below limit(), are free: extend() lengthens this run.
  [[nodiscard]] std::uint64_t free_at_end() const;

  // Recomputes every summary and the count of used slots from the bitmap, and stops the process when one is wrong.
  void validate() const;

 private:
  // Lengths, in slots, of free runs in a part of the bitmap. All zero: nothing free, as in fresh memory.
  struct summary {
    std::uint64_t at_start = 0;
    std::uint64_t longest = 0;
    std::uint64_t at_end = 0;
    bool operator==(const summary&) const = default;
  };
  static constexpr unsigned fanout_shift = 3;
  static constexpr unsigned word_shift = 6;
  static constexpr unsigned maximum_levels = 11;

  // Level 0 is the words of the bitmap, level `levels_` the root. A node of level n covers 64 * 8^n slots.
  [[nodiscard]] static constexpr std::uint64_t slots_of_node(unsigned level) {
    return std::uint64_t{1} << (word_shift + fanout_shift * level);
  }
  [[nodiscard]] static summary summary_of_word(std::uint64_t free_bits);
  [[nodiscard]] summary summary_of(unsigned level, std::uint64_t node) const FAR_REQUIRES(lock_);
  [[nodiscard]] summary merge_children(unsigned level, std::uint64_t node) const FAR_REQUIRES(lock_);
  void update_summaries(std::uint64_t first_word, std::uint64_t last_word) FAR_REQUIRES(lock_);
  [[nodiscard]] std::optional<slot_id> find_lowest(std::uint64_t count) const FAR_REQUIRES(lock_);
  [[nodiscard]] bool all_free(slot_id first, std::uint64_t count) const FAR_REQUIRES(lock_);
  void set_free(slot_id first, std::uint64_t count) FAR_REQUIRES(lock_);
  void set_allocated(slot_id first, std::uint64_t count) FAR_REQUIRES(lock_);

  const std::uint64_t capacity_slots_;
  std::size_t memory_bytes_ = 0;
  std::byte* memory_ = nullptr;
  std::uint64_t* words_ FAR_POINTEE_GUARDED_BY(lock_) = nullptr;  // a set bit is an available slot
  std::array<summary*, maximum_levels + 1> summaries_{};
  std::array<std::uint64_t, maximum_levels + 1> node_counts_{};
  unsigned levels_ = 0;

  mutable spin_lock lock_;
  std::uint64_t limit_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t used_ FAR_GUARDED_BY(lock_) = 0;
  slot_id next_ FAR_GUARDED_BY(lock_) = 0;  // where the last allocation ended
};

}  // namespace far::backend
