// Functions that workers call between fibers and when idle, above all for completions of the far tier.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "base/spin_lock.h"

namespace far::fiber {

// Polls, without waiting, and returns in how much time it wants to be called again: 0 as soon as possible,
// nanoseconds::max() when poll_soon() will tell. Runs on a worker's own stack, by one worker at a time; must not wait,
// touch far memory, or throw. May wake fibers.
using poller = std::function<std::chrono::nanoseconds()>;

// Thread-safe.
class poller_list {
 public:
  static constexpr unsigned most_pollers = 16;
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  // Returns its number. It is called for the first time as soon as possible. Requires: fewer than most_pollers.
  [[nodiscard]] unsigned add(poller one);
  // When this returns, it does not run and will not be called again. Not from a poller.
  void remove(unsigned number) noexcept;
  // Nothing happens if it has been removed.
  void soon(unsigned number) noexcept;

  // Calls those that are due and that no other worker is calling. Returns how many.
  unsigned serve(std::uint64_t now_ns) noexcept;

  // When the next one is due (CLOCK_MONOTONIC), or `none`.
  [[nodiscard]] std::uint64_t due_ns() const noexcept;

 private:
  struct place {
    spin_lock lock;  // held while it runs
    poller call FAR_GUARDED_BY(lock);
    std::atomic<std::uint64_t> due_ns{none};
    std::atomic<bool> used{false};
  };

  std::array<place, most_pollers> places_;
  std::atomic<unsigned> in_use_{0};  // places at and above this were never used
};

}  // namespace far::fiber
