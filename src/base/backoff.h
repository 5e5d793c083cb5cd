// How a thread waits for something that takes another thread some tens of nanoseconds, as a rule.
#pragma once

namespace far {

inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits a little longer each time it is called: spins first, then yields the CPU, then sleeps. A long wait
// is not for a lock, but for a thread that has work to do: it gets the CPU.
class backoff {
 public:
  // Not inline: the simulation has another one, which gives up the simulated CPU.
  void pause() noexcept;

 private:
  unsigned rounds_ = 0;
};

}  // namespace far
