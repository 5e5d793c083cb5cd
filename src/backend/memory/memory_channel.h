// The queue of `memory:`: a write is copied, and a read lent or copied when the emulated link says that it is complete.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/memory/emulated_link.h"
#include "platform/local_memory.h"

namespace far::backend {

class slot_allocator;

// A write is copied when it is submitted; a read is lent or copied when its completion is polled, so that its bytes
// never arrive early. The contract allows both, since concurrent transfers of one slot have no order.
//
// No thread works while a transfer is on its way: its completion time is computed once, and wait() sleeps until then on
// a timer. Unlike nanosleep(), a timer has no slack of 50 us.
class memory_channel final : public channel {
 public:
  // Requires: `slots`, `frames` (the address of slot 0) and `link` outlive the channel; depth > 0.
  memory_channel(const slot_allocator& slots, std::byte* frames, emulated_link& link, std::size_t depth);
  ~memory_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) override;
  [[nodiscard]] std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t timeout_ns) override;
  [[nodiscard]] std::size_t in_flight() const override;

  // A timer that fires when the next transfer is complete; -1 when the link is instant (nothing ever waits).
  [[nodiscard]] int event_descriptor() const override;

 private:
  struct transfer {
    std::uint64_t due_ns;
    request io;
  };
  // First in, first out: the link delivers each direction in order.
  struct direction {
    explicit direction(std::size_t depth) : transfers(depth) {}
    [[nodiscard]] bool empty() const { return count == 0; }
    [[nodiscard]] const transfer& front() const { return transfers[head]; }
    void push(const transfer& added) {
      transfers[(head + count) % transfers.size()] = added;
      ++count;
    }
    void pop() {
      head = (head + 1) % transfers.size();
      --count;
    }

    std::vector<transfer, platform::local_allocator<transfer>> transfers;
    std::size_t head = 0;
    std::size_t count = 0;
  };

  // The direction whose first transfer is due first, or nullptr when nothing is in flight.
  [[nodiscard]] direction* next_due();
  [[nodiscard]] const direction* next_due() const;
  [[nodiscard]] std::byte* address_of(const request& io) const {
    return frames_ + io.slot * page_bytes + io.offset_bytes;
  }
  void copy(const request& io) const;
  void answer_rows(const request& io) const;
  // Makes the timer fire at `when_ns`; 0 switches it off.
  void set_timer(std::uint64_t when_ns) const;
  void watch_next() const;

  const slot_allocator& slots_;
  std::byte* const frames_;
  emulated_link& link_;
  const std::size_t depth_;
  std::array<direction, 2> directions_;  // by operation
  int timer_ = -1;
  mutable bool timer_is_watched_ = false;  // somebody asked for the descriptor: keep it set to the next completion
};

}  // namespace far::backend
