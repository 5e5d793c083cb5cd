// Sleeping on a word of memory until another thread wakes it or a deadline passes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

namespace far::platform {

inline constexpr std::uint64_t no_deadline_ns = ~std::uint64_t{0};

// Sleeps while `word` holds `expected`. Returns false when the deadline (CLOCK_MONOTONIC) passed; true otherwise, also
// for no reason: look at the word again. errno is preserved.
inline bool futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::uint64_t deadline_ns) noexcept {
  const timespec deadline{static_cast<std::time_t>(deadline_ns / 1'000'000'000),
                          static_cast<long>(deadline_ns % 1'000'000'000)};
  const int saved_errno = errno;
  const long failed = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected,
                              deadline_ns == no_deadline_ns ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
  const bool in_time = failed == 0 || errno != ETIMEDOUT;
  errno = saved_errno;
  return in_time;
}

// Wakes one thread that sleeps on the word. The word may be gone by now: then none, or a thread that looks again.
inline void futex_wake_one(std::atomic<std::uint32_t>* word) noexcept {
  const int saved_errno = errno;
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  errno = saved_errno;
}

}  // namespace far::platform
