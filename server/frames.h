// The server's own memory: zeroed, aligned blocks of 2 MiB. They are filled when they are handed out, so that using one
// later cannot fail.
//
// The first blocks come from the machine's pool of huge pages, the others from ordinary memory, with advice to use huge
// pages. Address space for all of them is reserved once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/thread_mutex.h"

namespace far::server {

// Thread-safe.
class frames {
 public:
  // Reserves address space for `most_blocks`. `pool_blocks` of them, at most, are taken from the pool of huge pages.
  // Errors: no address space left.
  [[nodiscard]] static result<std::unique_ptr<frames>> reserve(std::uint64_t most_blocks, std::uint64_t pool_blocks);
  ~frames();
  frames(const frames&) = delete;
  frames& operator=(const frames&) = delete;

  // A zeroed block, every page of it in memory; nullptr when the machine has no more memory to spare.
  [[nodiscard]] std::byte* take();
  // Gives its frames back to the machine. Requires: `block` comes from take(), and is unused.
  void give_back(std::byte* block);

  // How many blocks the pool of huge pages of this machine could give now.
  [[nodiscard]] static std::uint64_t free_in_pool();

 private:
  struct region {
    std::byte* reserved = nullptr;  // what to unmap
    std::uint64_t reserved_bytes = 0;
    std::byte* begin = nullptr;  // aligned
    std::uint64_t blocks = 0;
    std::uint64_t fresh = 0;           // blocks from here on have never been used
    std::vector<std::byte*> returned;  // room for all: give_back never allocates

    [[nodiscard]] bool holds(const std::byte* block) const;
  };

  frames() = default;
  [[nodiscard]] static bool reserve_ordinary(region& into, std::uint64_t blocks);
  static void reserve_pool(region& into, std::uint64_t blocks);
  [[nodiscard]] std::byte* next_of(region& from) FAR_REQUIRES(lock_);
  [[nodiscard]] std::byte* take_from_pool();
  [[nodiscard]] std::byte* take_ordinary();
  [[nodiscard]] bool machine_can_spare() FAR_REQUIRES(lock_);

  thread_mutex lock_;
  region pool_;
  region ordinary_;
  std::uint64_t unchecked_takes_ FAR_GUARDED_BY(lock_) = 0;  // since memory was last checked
  bool enough_memory_ FAR_GUARDED_BY(lock_) = true;
  std::uint64_t floor_bytes_ = 0;  // memory that the machine keeps
};

}  // namespace far::server
