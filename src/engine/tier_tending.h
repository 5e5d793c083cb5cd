// The far tier's own upkeep (see backend::tend()), and the scrubbing of its copies. It stops while the process forks,
// so that it is not half done in the child.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/backend.h"
#include "base/spin_lock.h"
#include "engine/core.h"
#include "engine/scrubber.h"
#include "platform/fork_order.h"

namespace far::engine {

class tier_tending {
 public:
  explicit tier_tending(core& shared) : far_(shared.far), scrubbing_(shared) {}

  // Whether tend() should be called now.
  [[nodiscard]] bool is_wanted() const { return far_.wants_tending(); }
  [[nodiscard]] std::uint64_t tend() {
    const platform::holds_up_forks waited_for;
    const lock_guard guard(lock_);
    const std::uint64_t until_next_ns = far_.tend();
    return std::min(until_next_ns, scrubbing_.step());
  }

  // Around fork.
  void lock() FAR_ACQUIRE(lock_) { lock_.lock(); }
  void unlock() FAR_RELEASE(lock_) { lock_.unlock(); }
  // In the child: the first before channels are opened, the second when the far tier knows of the fork.
  void close_in_child() FAR_UNCHECKED_LOCKING { scrubbing_.close_in_child(); }
  void open_in_child() FAR_UNCHECKED_LOCKING {
    lock_.open_in_child();
    scrubbing_.restart_in_child();
  }

 private:
  backend::backend& far_;
  scrubber scrubbing_ FAR_GUARDED_BY(lock_);
  spin_lock lock_;
};

}  // namespace far::engine
