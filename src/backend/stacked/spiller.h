// Moves the coldest slots of the first tier of a stack to the next one when the first is nearly full.
//
// A clock hand goes round the slots. If a slot was used since the last visit, the hand clears its mark and leaves it
// alone; a slot without the mark at the next visit is cold. So a slot stays for at least a round after it was written
// or read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/slot_allocator.h"
#include "backend/stacked/place_table.h"
#include "platform/clock.h"

namespace far::backend {

class spiller {
 public:
  // `slots` and `places` are those of the stack, which frees its members' slots.
  spiller(backend& first, backend& next, slot_allocator& slots, place_table& places, const platform::clock& time);
  ~spiller();
  spiller(const spiller&) = delete;
  spiller& operator=(const spiller&) = delete;

  // After an allocation: looks whether the first tier is nearly full.
  void note_growth();
  // Fuller than moving leaves it.
  [[nodiscard]] bool is_nearly_full() const;
  [[nodiscard]] bool wants_step() const;

  // Does what can be done at once; returns as backend::tend(). One thread at a time.
  std::uint64_t step();

  // Slots that were freed, and that moves still hold.
  [[nodiscard]] std::uint64_t dead_slots() const { return dead_slots_.load(std::memory_order_relaxed); }
  void note_dead() { dead_slots_.fetch_add(1, std::memory_order_relaxed); }
  void forget_dead() { dead_slots_.fetch_sub(1, std::memory_order_relaxed); }

  // In the child of a fork: the moves stay with the parent.
  void forget_in_child();

 private:
  static constexpr std::size_t batch_pages = 64;
  static constexpr std::size_t batch_count = 4;

  struct move {
    slot_id slot = no_slot;  // no_slot: over
    slot_id from = no_slot;  // in the first tier
    bool failed = false;
  };
  struct batch {
    enum class phase : std::uint8_t { unused, reading, read, writing, settling };
    std::array<move, batch_pages> moves{};
    std::size_t count = 0;
    std::size_t outstanding = 0;
    slot_id first_in_next = 0;
    phase now = phase::unused;
  };

  [[nodiscard]] bool open_channels();
  [[nodiscard]] bool is_fuller_than(std::uint64_t eighths) const;
  [[nodiscard]] bool start_batch(batch& into);
  void choose(batch& into, std::size_t wanted);
  [[nodiscard]] std::size_t allocate_next(slot_id* first);
  void poll_reads();
  void poll_writes();
  void submit_reads(batch& moving);
  void submit_write(batch& moving);
  void settle(batch& moving);
  void end_move(batch& moving, std::size_t position, place_table::moved how);
  void pause(int error_code);
  [[nodiscard]] std::byte* buffer_of(const batch& moving) const {
    return buffers_ + static_cast<std::size_t>(&moving - batches_.data()) * batch_pages * page_bytes;
  }
  [[nodiscard]] bool is_idle() const;

  backend& first_;
  backend& next_;
  slot_allocator& slots_;
  place_table& places_;
  const platform::clock& time_;
  std::byte* const buffers_;
  std::unique_ptr<channel> from_;
  std::unique_ptr<channel> to_;
  std::array<batch, batch_count> batches_{};
  slot_id hand_ = 0;
  std::uint64_t looks_left_ = 0;  // of this step
  std::uint64_t pause_ns_ = 0;
  bool pause_is_reported_ = false;
  std::atomic<std::uint64_t> paused_until_ns_{0};
  std::atomic<bool> wanted_{false};
  std::atomic<std::uint64_t> dead_slots_{0};
};

}  // namespace far::backend
