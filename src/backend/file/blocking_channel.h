// A queue of `file:` where io_uring is not permitted: each transfer is made, and finished, inside submit().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.h"
#include "backend/file/completion_queue.h"
#include "backend/file/range_locks.h"
#include "backend/file/store_file.h"
#include "base/result.h"

namespace far::backend {

class slot_allocator;

// The one channel that makes its caller wait for the device: the best that is left without io_uring.
class blocking_channel final : public channel {
 public:
  static constexpr std::size_t largest_depth = 1 << 20;

  // Requires: the arguments outlive the channel. Errors: depth out of range.
  [[nodiscard]] static result<std::unique_ptr<channel>> open(const store_file& file, const slot_allocator& slots,
                                                             range_locks& locks, std::size_t depth);
  ~blocking_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) override;
  [[nodiscard]] std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t timeout_ns) override;
  [[nodiscard]] std::size_t in_flight() const override { return in_flight_; }
  [[nodiscard]] int event_descriptor() const override;

 private:
  blocking_channel(const store_file& file, const slot_allocator& slots, range_locks& locks, std::size_t depth);

  // Each returns 0 or an errno value.
  [[nodiscard]] int move(operation op, std::uint64_t position, std::byte* buffer, std::uint64_t length_bytes) const;
  [[nodiscard]] int serve(const request& what) const;
  [[nodiscard]] int rewrite(const request& what) const;
  void signal() const;

  const store_file& file_;
  const slot_allocator& slots_;
  range_locks& locks_;
  const std::size_t depth_;
  std::size_t in_flight_ = 0;
  completion_queue ready_;
  std::byte* const bounce_;
  mutable int event_ = -1;
};

}  // namespace far::backend
