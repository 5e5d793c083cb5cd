#include "pager/process_host.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "platform/fork_order.h"

namespace far::pager {
namespace {

// Each thread starts with a fetcher of its own, as far as there are enough.
std::atomic<unsigned> thread_tokens{0};
thread_local const unsigned thread_token = thread_tokens.fetch_add(1, std::memory_order_relaxed);

// Not inline, and opaque to the optimiser: a fiber that continued on another thread must not use the old thread's
// value.
[[gnu::noinline]] unsigned token_of_thread() noexcept {
  asm volatile("");
  return thread_token;
}

}  // namespace

void process_host::enter() noexcept {
  ++platform::forks_held_up;
}

void process_host::leave() noexcept {
  --platform::forks_held_up;
}

void process_host::rest(std::uint64_t nanoseconds) noexcept {
  const timespec length{.tv_sec = 0, .tv_nsec = static_cast<long>(nanoseconds)};
  syscall(SYS_nanosleep, &length, nullptr);  // nanosleep() would let a thread be cancelled here
}

std::size_t process_host::preferred_fetcher() const noexcept {
  return token_of_thread();
}

}  // namespace far::pager
