#include "base/backoff.h"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace far {
namespace {

constexpr unsigned spin_rounds = 32;
constexpr unsigned yield_rounds = 512;

}  // namespace

void backoff::pause() noexcept {
  if (++rounds_ < spin_rounds) {
    for (unsigned i = 0; i < rounds_; ++i) cpu_relax();
    return;
  }
  sched_yield();
  if (rounds_ < yield_rounds) return;
  const timespec length{.tv_sec = 0, .tv_nsec = 50'000};
  syscall(SYS_nanosleep, &length, nullptr);  // nanosleep() would let a thread be cancelled here
}

}  // namespace far
