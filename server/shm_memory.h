// The memory of one session over shared memory: a file in memory that the client maps too.
//
// The file is as large as the session may ever become, and sealed: nobody can enlarge it, or shrink it, which would
// kill processes that touch the rest. Only take() fills its pages, block by block. A client that touches pages that it
// was not granted fills them, too; overdrawn() detects that, because the kernel counts the file's pages.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/thread_mutex.h"
#include "server/store.h"

namespace far::server {

// Thread-safe.
class shm_memory final : public block_source {
 public:
  shm_memory() = default;
  ~shm_memory() override;

  // Makes the file. Requires: called once, before anything else. Errors: no descriptor, no address space.
  [[nodiscard]] result<void> create(std::uint64_t blocks);

  [[nodiscard]] std::byte* take(std::uint64_t number) override;
  // Frees the block's frames, even if they are mapped, unless keep_bytes() was called.
  void give_back(std::uint64_t number, std::byte* block) override;
  [[nodiscard]] bool outlives_server() const override { return true; }

  // Whether the file has more pages than were granted: the client has touched pages that are not its own.
  [[nodiscard]] bool overdrawn() const;

  // The server stops: clients may continue to read the memory.
  void keep_bytes() { keeps_bytes_.store(true); }

  [[nodiscard]] int descriptor() const { return file_; }
  [[nodiscard]] std::uint64_t blocks() const { return blocks_; }
  // How many connections use it; for the service.
  unsigned connections = 0;

 private:
  [[nodiscard]] bool fill(std::uint64_t number) FAR_REQUIRES(lock_);
  [[nodiscard]] bool machine_can_spare() FAR_REQUIRES(lock_);

  int file_ = -1;
  std::uint64_t blocks_ = 0;
  std::byte* base_ = nullptr;
  bool through_mapping_ = false;  // huge pages can be had only by touching a mapping with advice to use them
  std::atomic<bool> keeps_bytes_{false};

  mutable thread_mutex lock_;  // so that pages and grants are counted at one moment
  std::uint64_t granted_blocks_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t takes_ FAR_GUARDED_BY(lock_) = 0;
  bool enough_memory_ FAR_GUARDED_BY(lock_) = true;
};

// A file in memory of this size, filled on first touch, sealed against any change of size. Returns a close-on-exec
// descriptor. Errors: no descriptor or memory left.
[[nodiscard]] result<int> make_sealed_file(const char* name, std::uint64_t bytes);

}  // namespace far::server
