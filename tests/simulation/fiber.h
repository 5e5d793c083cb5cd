// A stackful fiber, on which a simulated thread runs. All fibers share one OS thread; exactly one runs at a time.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <functional>

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
  static void enter();
  void before_switch(void** fake_stack, const void* bottom, std::size_t bytes, void* tsan_fiber);
  void after_switch(void* fake_stack, const void** bottom, std::size_t* bytes);

  std::function<void()> body_;
  std::byte* stack_;
  ucontext_t own_{};
  [[maybe_unused]] ucontext_t resumer_{};
  // Where each side goes on, where no sanitizer watches: swapcontext saves the signal mask, with two system calls.
  [[maybe_unused]] jmp_buf own_place_;
  [[maybe_unused]] jmp_buf resumer_place_;
  bool started_ = false;
  bool ended_ = false;

  // The facts that the sanitizers want to know about both sides of a switch.
  void* own_fake_stack_ = nullptr;
  void* resumer_fake_stack_ = nullptr;
  const void* resumer_bottom_ = nullptr;
  std::size_t resumer_bytes_ = 0;
  void* tsan_own_ = nullptr;
  void* tsan_resumer_ = nullptr;
};

}  // namespace far::simulation
