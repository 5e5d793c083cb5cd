// `file:[PATH][?capacity=SIZE&direct=0|1]`: slots are pages of a file or a block device, moved by io_uring, or else by
// a few threads that all channels share.
//
// See store_file.h for what PATH may be, ring_channel.h and transfer_threads.h for how requests become transfers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/file/blocking_transfers.h"
#include "backend/file/range_locks.h"
#include "backend/file/store_file.h"
#include "backend/file/transfer_threads.h"
#include "backend/slot_allocator.h"
#include "base/spin_lock.h"
#include "base/thread_mutex.h"

namespace far::backend {

class uri;

// Space is reserved on the device before slots are handed out, in steps of up to 64 MiB, so a full disk shows as a
// failed allocation and never as a lost page. Slots that were freed are used again, the lowest first; their space goes
// back to the file system when the backend is destroyed.
//
// After a fork the child must not use the backend before after_fork_in_child(), nor the parent's channels at all; it
// may destroy them.
class file_backend final : public backend {
 public:
  // Options: capacity, direct. Errors say what to write instead.
  [[nodiscard]] static result<std::unique_ptr<backend>> open(const uri& name);
  [[nodiscard]] static result<std::unique_ptr<backend>> create(const file_options& chosen);

  file_backend(std::unique_ptr<store_file> file, bool use_io_uring);
  ~file_backend() override;

  [[nodiscard]] result<slot_id> allocate(std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  void after_fork_in_child() override;
  [[nodiscard]] capacity report() const override;
  [[nodiscard]] speed expected_speed() const override;
  [[nodiscard]] std::string describe() const override;

 private:
  // Makes at least `needed_slots` more available; returns whether it did.
  [[nodiscard]] bool grow(std::uint64_t needed_slots) FAR_REQUIRES(growth_lock_);
  void abandon_threads_of_parent() FAR_REQUIRES(threads_lock_);

  const std::unique_ptr<store_file> file_;
  const bool use_io_uring_;
  slot_allocator slots_;
  range_locks locks_;

  // Without io_uring. The threads are started with the first channel.
  const blocking_transfers transfers_;
  spin_lock threads_lock_;
  std::unique_ptr<transfer_threads> threads_ FAR_GUARDED_BY(threads_lock_);

  thread_mutex growth_lock_;
  // The device had no room for so many slots; it is not asked again before this time.
  std::uint64_t refused_slots_ FAR_GUARDED_BY(growth_lock_) = 0;
  std::uint64_t ask_again_ns_ FAR_GUARDED_BY(growth_lock_) = 0;
};

}  // namespace far::backend
