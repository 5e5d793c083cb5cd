// A lock for critical sections of some tens of nanoseconds.
//
// The runtime runs inside fault handlers and inside malloc, where a lock must neither allocate nor sleep in a library
// that could itself be waiting for the far heap. The holder may be preempted, so waiters give up the CPU after a while.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace far {

inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits a little longer each time it is called: spins first, then yields the CPU. Who has waited long does not wait for
// a lock, but for a thread that has work to do, and leaves the CPU to it.
class backoff {
 public:
  void pause() noexcept {
    if (++rounds_ < spin_rounds) {
      for (unsigned i = 0; i < rounds_; ++i) cpu_relax();
      return;
    }
    sched_yield();
    if (rounds_ < yield_rounds) return;
    const timespec length{.tv_sec = 0, .tv_nsec = 50'000};
    syscall(SYS_nanosleep, &length, nullptr);  // nanosleep() would let a thread be cancelled here
  }

 private:
  static constexpr unsigned spin_rounds = 32;
  static constexpr unsigned yield_rounds = 512;
  unsigned rounds_ = 0;
};

// Meets the standard Lockable requirements: use it with std::lock_guard and std::unique_lock.
class spin_lock {
 public:
  void lock() noexcept {
    backoff waiting;
    while (!try_lock()) waiting.pause();
  }
  [[nodiscard]] bool try_lock() noexcept {
    return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace far
