// A queue of `file:` on io_uring.
#pragma once

#include <liburing.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/completion_queue.h"
#include "backend/file/range_locks.h"
#include "backend/file/store_file.h"
#include "backend/file/window.h"
#include "base/result.h"
#include "platform/local_memory.h"

namespace far::backend {

class slot_allocator;

// Requests of one submit() that are adjacent in the store become one transfer, wherever their buffers lie, of at most
// merged_read_bytes or merged_write_bytes. They complete together; a caller that needs one page sooner than its
// neighbours submits it in a batch of its own. When a merged transfer fails, its requests are tried again one by one,
// so that one bad block costs one page.
//
// Requests that O_DIRECT would refuse go through a bounce buffer, one window after the other; each transfer has at most
// one entry in the ring, so the ring never overflows.
//
// The kernel finishes transfers in the context of the thread that submitted them. When that thread ends first, the
// kernel may cancel them; the next thread that submits then submits them again. While the thread waits inside the
// kernel for a page of ours, or for the child of a vfork, its transfers do not complete at all: needs_its_submitter().
// So poll() submits nothing.
//
// After a fork the child must not use the channel; it may destroy it. The ring is not mapped in the child.
class ring_channel final : public channel {
 public:
  static constexpr std::size_t largest_depth = 32768 / 2;
  static constexpr std::size_t merged_read_bytes = 64 * kib;
  static constexpr std::size_t merged_write_bytes = 256 * kib;

  // Whether this process may use io_uring, and the kernel is recent enough (5.11). Otherwise errno says why not.
  [[nodiscard]] static bool is_available();

  // Requires: the arguments outlive the channel. Errors: no memory or descriptor for the ring, depth out of range.
  [[nodiscard]] static result<std::unique_ptr<channel>> open(const store_file& file, const slot_allocator& slots,
                                                             range_locks& locks, std::size_t depth);
  ~ring_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) override;
  [[nodiscard]] std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t timeout_ns) override;
  [[nodiscard]] std::size_t in_flight() const override { return in_flight_; }
  [[nodiscard]] int event_descriptor() const override;
  [[nodiscard]] bool needs_its_submitter() const override { return true; }
  [[nodiscard]] bool has_left() const override { return !unsubmitted_.empty(); }
  void submit_left() override { flush(); }
  void close_in_child() override;

 private:
  static constexpr std::size_t merged_requests = 64;

  enum class phase : std::uint8_t {
    straight,          // between the file and the requests' own buffers
    bounced_read,      // a window of the file into the bounce buffer
    waiting_for_turn,  // waits for the range lock of a window that it will rewrite
    reading_window,    // reads the bytes that a write does not change
    writing_window,
  };

  struct transfer {
    phase at;
    std::uint8_t tries;  // failures in a row that are worth another try
    std::uint16_t request_count;
    std::uint16_t chunk_count;
    std::uint16_t first_chunk;  // those before it are done
    std::uint64_t position;     // straight: of first_chunk in the file; else: of the window's missing part
    std::uint64_t left_bytes;   // from `position`, until this phase is done
    remainder rest;             // not straight
    window current;             // not straight
    bool holds_range;           // not straight
    std::array<iovec, merged_requests> chunks;
    std::array<request, merged_requests> requests;
  };
  static_assert(std::is_trivially_default_constructible_v<iovec>);

  ring_channel(const store_file& file, const slot_allocator& slots, range_locks& locks, std::size_t depth);
  [[nodiscard]] result<void> open_ring();

  [[nodiscard]] std::byte* bounce_of(std::uint32_t index) const { return bounces_ + index * bounce_bytes; }
  [[nodiscard]] std::uint64_t position_of(const request& io) const {
    return file_.position_of(io.slot) + io.offset_bytes;
  }
  [[nodiscard]] std::size_t mergeable(std::span<const request> batch) const;
  void begin(std::span<const request> merged);
  void begin_straight(std::uint32_t index);
  void begin_window(std::uint32_t index);
  void begin_phase(std::uint32_t index, phase at, std::uint64_t position, std::uint64_t length_bytes);
  void enqueue(std::uint32_t index);
  void fill_entry(io_uring_sqe* entry, std::uint32_t index);
  void flush();
  void fail_unsubmitted(int code);
  void reap();
  void handle(std::uint32_t index, int outcome);
  void advance_chunks(transfer& moved, std::size_t bytes);
  void phase_done(std::uint32_t index);
  void finish(std::uint32_t index, int code);
  void release_range(transfer& owner);

  const store_file& file_;
  const slot_allocator& slots_;
  range_locks& locks_;
  const std::size_t depth_;
  const int owner_process_;

  mutable io_uring ring_{};  // mutable: the event descriptor is registered when it is first asked for
  mutable int event_ = -1;
  bool ring_open_ = false;
  bool file_registered_ = false;
  int broken_code_ = 0;  // the ring takes nothing any more

  std::size_t in_flight_ = 0;  // requests taken and not yet polled
  completion_queue ready_;
  transfer* transfers_ = nullptr;
  std::byte* bounces_ = nullptr;
  std::vector<std::uint32_t, platform::local_allocator<std::uint32_t>> unused_;
  // Transfers whose entry the kernel has not taken yet, in ring order.
  std::vector<std::uint32_t, platform::local_allocator<std::uint32_t>> unsubmitted_;
};

}  // namespace far::backend
