// A stackful fiber, on which a simulated thread runs. All fibers share one OS thread; exactly one runs at a time.
#pragma once

#include <cstddef>
#include <functional>

#include "fiber/context.h"

namespace far::simulation {

class fiber {
 public:
  // `body` starts with the first resume().
  explicit fiber(std::function<void()> body);
  // Requires: never resumed, or ended.
  ~fiber();
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  // Runs the fiber until it suspends or ends. Requires: called outside of any fiber, not ended.
  void resume();

  // Goes back to the caller of resume(). Requires: called on it.
  void suspend();

  [[nodiscard]] bool ended() const { return ended_; }

 private:
  static void enter(void* entered);

  std::function<void()> body_;
  std::byte* stack_;
  far::fiber::context own_;
  far::fiber::context resumer_;
  bool started_ = false;
  bool ended_ = false;
};

}  // namespace far::simulation
