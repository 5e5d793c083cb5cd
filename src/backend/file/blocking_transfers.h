// The transfers of `file:` where io_uring is not permitted, made by blocking system calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/file/range_locks.h"
#include "backend/file/store_file.h"
#include "backend/file/transfer_threads.h"

namespace far::backend {

class slot_allocator;

class blocking_transfers final : public transfer_maker {
 public:
  // Requires: the arguments outlive it.
  blocking_transfers(const store_file& file, const slot_allocator& slots, range_locks& locks)
      : file_(file), slots_(slots), locks_(locks) {}

  [[nodiscard]] int make(const request& io, std::byte* bounce) const override;

 private:
  // Each returns 0 or an errno value.
  [[nodiscard]] int move(operation op, std::uint64_t position, std::byte* buffer, std::uint64_t length_bytes) const;
  [[nodiscard]] int rewrite(const request& io, std::byte* bounce) const;

  const store_file& file_;
  const slot_allocator& slots_;
  range_locks& locks_;
};

}  // namespace far::backend
