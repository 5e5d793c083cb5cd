// The slots of a tier whose blocks are leased from a memory server.
//
//                  grant()
//     nobody's ----------------> ours: free, or in use by callers
//        ^                          |
//        |   take_out(): the block  |   write_off(), then forget(): the server has lost it,
//        +-- is free as a whole <---+-- and its slots leave us one by one
//
// The table says who owns which slots. Its user decides when to request and return blocks, and what happens when their
// server is gone. That differs: with a server over TCP the bytes are lost (tcp/block_table.h), while shared memory
// stays readable (shm/block_exchange.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "backend/backend.h"
#include "backend/slot_allocator.h"
#include "wire/message.h"

namespace far::backend {

// How many blocks so many slots need.
[[nodiscard]] constexpr std::uint64_t blocks_for(std::uint64_t slots) {
  return (slots + wire::block_slots - 1) / wire::block_slots;
}

// The caller serialises calls that lease blocks. slots(), used() and unowned_slots() from any thread.
class lease_table {
 public:
  // `numbers`: how many block numbers there are, from 0 on. Those beyond the capacity are for users whose lost blocks
  // keep their numbers for a while. Requires: 0 < capacity_slots <= numbers * wire::block_slots.
  lease_table(std::uint64_t capacity_slots, std::uint64_t numbers);

  // Lowers the capacity. Requires: no block was granted yet.
  void limit_capacity(std::uint64_t slots);

  [[nodiscard]] std::uint64_t capacity_slots() const { return capacity_slots_; }
  [[nodiscard]] std::uint64_t capacity_blocks() const { return blocks_for(capacity_slots_); }
  [[nodiscard]] std::uint64_t numbers() const { return numbers_; }

  // The source of callers' slots, which also takes them back while their block is ours.
  [[nodiscard]] slot_allocator& slots() { return slots_; }
  [[nodiscard]] const slot_allocator& slots() const { return slots_; }

  // The block in which the capacity ends is used only up to there. Blocks of a higher number are used as a whole.
  [[nodiscard]] std::uint64_t usable_slots(std::uint64_t block) const;

  // The block is ours: its slots can be allocated.
  void grant(std::uint64_t block);
  // The block was requested but is not granted, while blocks with higher numbers may be.
  void skip(std::uint64_t block);
  // Takes a block that is free as a whole out of use, so that it can go back; returns whether it is.
  [[nodiscard]] bool take_out(std::uint64_t block);
  // The server has lost the block. Its free slots are nobody's at once, used ones after forget().
  void write_off(std::uint64_t block);
  // `slots` of blocks that were written off are not in use any more.
  void forget(std::uint64_t slots) { unowned_ += slots; }

  // Slots that callers hold.
  [[nodiscard]] std::uint64_t used() const;
  // Slots below slots().limit() that are nobody's.
  [[nodiscard]] std::uint64_t unowned_slots() const { return unowned_.load(std::memory_order_relaxed); }

  // Recomputes all that it can, and stops the process when something is wrong.
  void validate() const;

 private:
  void extend(slot_id begin, slot_id end);
  void claim_free(slot_id first, std::uint64_t count);

  std::uint64_t capacity_slots_;
  const std::uint64_t numbers_;
  slot_allocator slots_;
  std::atomic<std::uint64_t> unowned_{0};  // allocated in slots_, but nobody's
};

}  // namespace far::backend
