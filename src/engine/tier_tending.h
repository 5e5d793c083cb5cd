// The far tier's own upkeep; see backend::tend(). It stops while the process forks, so that it is not half done in the
// child.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "base/spin_lock.h"
#include "platform/fork_order.h"

namespace far::engine {

class tier_tending {
 public:
  // Requires: the far tier outlives this.
  explicit tier_tending(backend::backend& far) : far_(far) {}

  // Whether tend() should be called now.
  [[nodiscard]] bool is_wanted() const { return far_.wants_tending(); }
  [[nodiscard]] std::uint64_t tend() {
    const platform::holds_up_forks waited_for;
    const lock_guard guard(lock_);
    return far_.tend();
  }

  // Around fork.
  void lock() FAR_ACQUIRE(lock_) { lock_.lock(); }
  void unlock() FAR_RELEASE(lock_) { lock_.unlock(); }
  void open_in_child() { lock_.open_in_child(); }

 private:
  backend::backend& far_;
  spin_lock lock_;
};

}  // namespace far::engine
