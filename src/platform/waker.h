// A thread that sleeps until it is woken or a deadline passes: a futex, for threads that must not use the program's
// condition variables.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace far::platform {

class waker {
 public:
  // Sleeps unless wake() was called since the last sleep. At most `timeout_ns`.
  void sleep(std::uint64_t timeout_ns) noexcept {
    std::uint32_t idle = running;
    if (!state_.compare_exchange_strong(idle, sleeping)) return go_on();  // it was `notified`
    const timespec timeout{static_cast<std::time_t>(timeout_ns / 1'000'000'000),
                           static_cast<long>(timeout_ns % 1'000'000'000)};
    syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, sleeping, &timeout, nullptr, 0);
    go_on();
  }

  // What the caller has stored before is found by the thread once it returns from sleep(): one of the two exchanges of
  // wake() and go_on() comes first, and the other one sees it.
  void wake() noexcept {
    if (state_.exchange(notified) == sleeping) syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

 private:
  static constexpr std::uint32_t running = 0;
  static constexpr std::uint32_t sleeping = 1;
  static constexpr std::uint32_t notified = 2;

  void go_on() noexcept { state_.exchange(running); }

  std::atomic<std::uint32_t> state_{running};
};

}  // namespace far::platform
