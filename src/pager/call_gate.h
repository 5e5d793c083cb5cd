// Memory calls of the program take parts of the far heap out of the map while they work on them. A fork waits until no
// call is at work, and lets none begin, so that the child finds every part in its place.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/backoff.h"
#include "platform/fork_order.h"
#include "platform/signal_shield.h"

namespace far::pager {

class call_gate {
 public:
  void enter() noexcept {
    backoff waiting;
    while (true) {
      inside_.fetch_add(1);
      if (!closed_.load()) return;
      inside_.fetch_sub(1);
      while (closed_.load()) waiting.pause();
    }
  }
  void leave() noexcept { inside_.fetch_sub(1); }

  // Waits for everybody inside. Requires: the calling thread is not inside.
  void close() noexcept {
    backoff waiting;
    while (closed_.exchange(true)) waiting.pause();
    while (inside_.load() > 0) waiting.pause();
  }
  void open() noexcept { closed_.store(false); }
  // In the child, which does not have the threads that were on their way in.
  void open_in_child() noexcept {
    inside_.store(0);
    open();
  }

 private:
  std::atomic<std::uint64_t> inside_{0};
  std::atomic<bool> closed_{false};
};

// Inside the gate, with signals blocked: a handler of the program must find the map of addresses complete. A call
// inside never allocates from the program's allocator, whose locks a fork holds before it closes the gate.
class memory_call {
 public:
  explicit memory_call(call_gate& gate) : gate_(gate) { gate_.enter(); }
  ~memory_call() { gate_.leave(); }
  memory_call(const memory_call&) = delete;
  memory_call& operator=(const memory_call&) = delete;

 private:
  platform::signal_shield shield_;
  platform::holds_up_forks waited_for_;
  call_gate& gate_;
};

}  // namespace far::pager
