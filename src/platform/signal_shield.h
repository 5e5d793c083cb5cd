// Keeps the program's signal handlers from running on this thread while it holds a lock of the runtime. A handler that
// touched far memory then would wait for a miss that cannot be resolved without that lock.
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

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

class signal_shield {
 public:
  signal_shield() noexcept : before_(block_signals()) {}
  ~signal_shield() { restore_signals(before_); }
  signal_shield(const signal_shield&) = delete;
  signal_shield& operator=(const signal_shield&) = delete;

 private:
  std::uint64_t before_;
};

}  // namespace far::platform
