// How a thread waits for something that usually takes another thread some tens of nanoseconds.
#pragma once

namespace far {

inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits a little longer each time it is called: spins first, then yields the CPU, then sleeps. In a long wait the other
// thread has work to do, so it gets the CPU.
class backoff {
 public:
  // Not inline: the simulation has another one, which gives up the simulated CPU.
  void pause() noexcept;

 private:
  [[maybe_unused]] unsigned rounds_ = 0;  // the simulation does not count them
};

}  // namespace far
