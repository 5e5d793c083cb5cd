// Keeps the program's signal handlers from running on this thread while it holds a lock of the runtime. A handler that
// touched far memory then would wait for a miss that cannot be resolved without that lock.
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace far::platform {

class signal_shield {
 public:
  // Straight to the kernel: the program's sigprocmask symbol may be interposed. Cannot fail for valid arguments.
  signal_shield() noexcept {
    const std::uint64_t all = ~std::uint64_t{0};
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &saved_, sizeof saved_);
  }
  ~signal_shield() { syscall(SYS_rt_sigprocmask, SIG_SETMASK, &saved_, nullptr, sizeof saved_); }
  signal_shield(const signal_shield&) = delete;
  signal_shield& operator=(const signal_shield&) = delete;

 private:
  std::uint64_t saved_ = 0;
};

}  // namespace far::platform
