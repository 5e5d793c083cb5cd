// `file:[PATH][?capacity=SIZE&direct=0|1]`: slots are pages of a file or a block device, moved by io_uring.
//
// See store_file.h for what PATH may be, ring_channel.h for how requests become transfers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "backend/backend.h"
#include "backend/file/range_locks.h"
#include "backend/file/store_file.h"
#include "backend/slot_allocator.h"

namespace far::backend {

class uri;

// Space is reserved on the device before slots are handed out, in steps of up to 64 MiB, so a full disk shows as a
// failed allocation and never as a lost page. Slots that were freed are used again, the lowest first; their space goes
// back to the file system when the backend is destroyed.
//
// After a fork the child must not use the backend or its channels; it may destroy them.
class file_backend final : public backend {
 public:
  // Options: capacity, direct. Errors say what to write instead.
  [[nodiscard]] static result<std::unique_ptr<backend>> open(const uri& name);
  [[nodiscard]] static result<std::unique_ptr<backend>> create(const file_options& chosen);

  file_backend(std::unique_ptr<store_file> file, bool use_io_uring);

  [[nodiscard]] result<slot_id> allocate(std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  [[nodiscard]] capacity report() const override;
  [[nodiscard]] speed expected_speed() const override;
  [[nodiscard]] std::string describe() const override;

 private:
  // Makes at least `needed_slots` more available; returns whether it did. Requires: growth_lock_ is held.
  [[nodiscard]] bool grow(std::uint64_t needed_slots);

  const std::unique_ptr<store_file> file_;
  const bool use_io_uring_;
  slot_allocator slots_;
  range_locks locks_;

  std::mutex growth_lock_;
  // The device was found to be full for so many slots; it is not asked again before the time is over.
  std::uint64_t refused_slots_ = 0;
  std::uint64_t ask_again_ns_ = 0;
};

}  // namespace far::backend
