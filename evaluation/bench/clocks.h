// Clocks: ticks for single accesses, nanoseconds for passes, and the CPU time of processes and kernel threads.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace far::bench {

// CLOCK_MONOTONIC.
[[nodiscard]] std::uint64_t monotonic_ns();

// A monotonic count that is cheap to read: the time-stamp counter on x86-64, nanoseconds elsewhere.
[[nodiscard]] inline std::uint64_t ticks_now() {
#if defined(__x86_64__)
  unsigned core = 0;
  return __builtin_ia32_rdtscp(&core);
#else
  return monotonic_ns();
#endif
}

// How long a tick lasts and how many ticks two readings in a row lie apart.
struct tick_scale {
  double nanoseconds_per_tick = 1;
  double overhead_ticks = 0;
};

// Measures the scale against the monotonic clock; takes about 30 ms.
[[nodiscard]] tick_scale calibrate_ticks();

// User and system time of all threads of this process, ended ones included.
[[nodiscard]] std::uint64_t process_cpu_ns();

// User and system time of the calling thread: unlike elapsed time, it does not grow while other programs run.
[[nodiscard]] std::uint64_t thread_cpu_ns();

// Time that the kernel's own threads have run (swap and loop devices work there), from /proc/PID/schedstat. It counts
// work for other programs too, and misses threads that ended. Fails where /proc does not tell.
[[nodiscard]] result<std::uint64_t> kernel_threads_cpu_ns();

}  // namespace far::bench
