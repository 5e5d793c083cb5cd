// Keeps the program's signal handlers from running on this thread while it holds a lock of the runtime. A handler that
// touched far memory then would wait for a miss that cannot be resolved without that lock. What the runtime calculates
// meanwhile neither traps nor leaves a trace: the program's arithmetic goes on as if nothing had been in between. Nor
// is the thread cancelled.
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "platform/arithmetic_mode.h"
#include "platform/cancellation.h"

namespace far::platform {

// Blocks every signal for this thread; returns what to restore. Straight to the kernel: the program's sigprocmask
// symbol may be interposed. Cannot fail for valid arguments.
[[nodiscard]] inline std::uint64_t block_signals() noexcept {
  const std::uint64_t all = ~std::uint64_t{0};
  std::uint64_t before = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof before);
  return before;
}

inline void restore_signals(std::uint64_t before) noexcept {
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
}

// The C library's own (SIGSETXID in glibc): setuid(2) and its siblings send it to every thread of the process, and wait
// for all of them. Its handler touches nothing but the thread's identity, so threads whose signals stay blocked let it
// in.
inline constexpr int identity_signal = 33;

inline void let_identity_change() noexcept {
  const std::uint64_t one = std::uint64_t{1} << (identity_signal - 1);
  syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &one, nullptr, sizeof one);
}

// Replacements for the beginning and end of shields, in a process whose system calls are dispatched (preload/): there
// the runtime's own calls would cost a signal each. Set once, while no shield is up.
struct shield_hooks {
  // Blocks every signal for this thread; returns what to restore.
  std::uint64_t (*begin)(unsigned char* dispatch_before) noexcept;
  void (*end)(std::uint64_t signals_before, unsigned char dispatch_before) noexcept;
};
inline constinit std::atomic<const shield_hooks*> installed_shield_hooks{nullptr};

// How many shields of the calling thread are up.
inline constinit thread_local unsigned shields_up = 0;

// A shield inside another one costs nothing, so every function that needs one takes one.
class signal_shield {
 public:
  signal_shield() noexcept {
    if (shields_up == 0) begin();
    ++shields_up;
  }
  ~signal_shield() {
    --shields_up;
    if (outermost_) end();
  }
  signal_shield(const signal_shield&) = delete;
  signal_shield& operator=(const signal_shield&) = delete;

 private:
  void begin() noexcept {
    outermost_ = true;
    hooks_ = installed_shield_hooks.load(std::memory_order_acquire);
    signals_before_ = hooks_ != nullptr ? hooks_->begin(&dispatch_before_) : block_signals();
    uncancelled_.emplace();
    arithmetic_before_ = current_arithmetic_mode();
    set_arithmetic_mode(usual_arithmetic_mode);
  }
  void end() noexcept {
    set_arithmetic_mode(arithmetic_before_);
    uncancelled_.reset();
    if (hooks_ != nullptr) {
      hooks_->end(signals_before_, dispatch_before_);
    } else {
      restore_signals(signals_before_);
    }
  }

  bool outermost_ = false;
  unsigned char dispatch_before_ = 0;
  std::optional<uncancelled> uncancelled_;
  const shield_hooks* hooks_ = nullptr;
  std::uint64_t signals_before_ = 0;
  arithmetic_mode arithmetic_before_{};
};

}  // namespace far::platform
