// A queue of `file:` where io_uring is not permitted: each transfer is made, and finished, inside submit().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/file/range_locks.h"
#include "backend/file/store_file.h"
#include "backend/immediate_channel.h"
#include "base/result.h"

namespace far::backend {

class slot_allocator;

// The one channel that makes its caller wait for the device: the best that is left without io_uring.
class blocking_channel final : public immediate_channel {
 public:
  static constexpr std::size_t largest_depth = 1 << 20;

  // Requires: the arguments outlive the channel. Errors: depth out of range.
  [[nodiscard]] static result<std::unique_ptr<channel>> open(const store_file& file, const slot_allocator& slots,
                                                             range_locks& locks, std::size_t depth);
  ~blocking_channel() override;

 private:
  blocking_channel(const store_file& file, const slot_allocator& slots, range_locks& locks, std::size_t depth);

  [[nodiscard]] int serve(const request& what) override;
  // Each returns 0 or an errno value.
  [[nodiscard]] int move(operation op, std::uint64_t position, std::byte* buffer, std::uint64_t length_bytes) const;
  [[nodiscard]] int rewrite(const request& what) const;

  const store_file& file_;
  const slot_allocator& slots_;
  range_locks& locks_;
  std::byte* const bounce_;
};

}  // namespace far::backend
