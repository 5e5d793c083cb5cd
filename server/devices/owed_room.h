// What processes that have ended had of their session's quota, until it goes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/thread_mutex.h"
#include "server/store.h"

namespace far::server {

// Thread-safe. A process ends under the lock of whoever keeps it, which comes after the store's; giving back takes that
// one. So it is noted first, and settled without locks.
class owed_room {
 public:
  explicit owed_room(std::weak_ptr<session> owner) : owner_(std::move(owner)) {}

  // A process with so many blocks has ended.
  void add(std::uint64_t blocks) {
    const lock_guard guard(lock_);
    blocks_ += blocks;
    ++processes_;
  }

  // To be called after each change. Requires: the caller holds no lock.
  void settle() {
    std::uint64_t blocks = 0;
    std::size_t processes = 0;
    {
      const lock_guard guard(lock_);
      blocks = std::exchange(blocks_, 0);
      processes = std::exchange(processes_, 0);
    }
    if (processes == 0) return;
    // A session that has ended has given back all.
    if (const std::shared_ptr<session> owner = owner_.lock()) owner->give_back_room(blocks, processes);
  }

 private:
  const std::weak_ptr<session> owner_;
  thread_mutex lock_;
  std::uint64_t blocks_ FAR_GUARDED_BY(lock_) = 0;
  std::size_t processes_ FAR_GUARDED_BY(lock_) = 0;
};

}  // namespace far::server
