#include "platform/thread_identity.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>

#include "base/check.h"
#include "base/spin_lock.h"
#include "platform/signal_shield.h"

namespace far::platform {
namespace {

constexpr std::size_t most_threads = 128;
constexpr unsigned longest_wait_ms = 10'000;

// A thread that follows, and the last call that it has made.
struct follower {
  // Process and thread in one number; free when the process is not this one, as in the child of a fork.
  std::atomic<std::uint64_t> who{0};
  std::atomic<std::uint64_t> sequence{0};
};
std::array<follower, most_threads> followers{};
constinit thread_local follower* this_follower = nullptr;

std::uint64_t number_of(pid_t thread) {
  return static_cast<std::uint64_t>(getpid()) << 32 | static_cast<std::uint64_t>(thread);
}

struct mirrored_call {
  std::uint64_t serial = 0;
  long number = 0;
  std::array<long, 5> arguments{};
};
std::atomic<pid_t> process_of_followers{0};
std::atomic<unsigned> expected_followers{0};
spin_lock mirroring;                              // held for one call at a time
mirrored_call current FAR_GUARDED_BY(mirroring);  // written before `announced`
std::atomic<std::uint64_t> announced{0};          // serial of the call that is to be made

// As the kernel has it: the C library refuses its own signals.
struct kernel_action {
  void (*handler)(int, siginfo_t*, void*);
  unsigned long flags;
  void (*restorer)();
  std::uint64_t mask;
};
kernel_action of_c_library{};

void on_identity_signal(int number, siginfo_t* info, void* context) {
  mirroring.assert_held();  // by the thread that sent the signal; for one of the C library's nothing is done here
  const int saved_errno = errno;
  const std::uint64_t serial = announced.load(std::memory_order_acquire);
  follower* const own = this_follower;
  if (own != nullptr && own->sequence.load(std::memory_order_relaxed) != serial && serial == current.serial) {
    syscall(current.number, current.arguments[0], current.arguments[1], current.arguments[2], current.arguments[3],
            current.arguments[4]);
    own->sequence.store(serial, std::memory_order_release);
  } else if (of_c_library.handler != nullptr) {
    of_c_library.handler(number, info, context);
  }
  errno = saved_errno;
}

// The C library has installed its own before it started the first thread.
void take_identity_signal() {
  if (of_c_library.handler != nullptr) return;
  kernel_action before{};
  constexpr std::size_t mask_bytes = sizeof before.mask;
  if (syscall(SYS_rt_sigaction, identity_signal, nullptr, &before, mask_bytes) != 0 || before.handler == nullptr)
    return;
  of_c_library = before;
  kernel_action ours = before;
  ours.handler = on_identity_signal;
  syscall(SYS_rt_sigaction, identity_signal, &ours, nullptr, mask_bytes);
}

void pause_for_ms(long ms) {
  const timespec pause{.tv_sec = 0, .tv_nsec = ms * 1'000'000};
  syscall(SYS_nanosleep, &pause, nullptr);
}

bool wait_for_expected_followers() {
  for (unsigned waited_ms = 0; expected_followers.load() > 0; ++waited_ms) {
    if (waited_ms == longest_wait_ms) return false;
    pause_for_ms(1);
  }
  return true;
}

enum class followed { before, now, never };

// Makes a follower make the current call. A thread that is gone needs no call.
followed make_follow(follower& entry) FAR_REQUIRES(mirroring) {
  const std::uint64_t who = entry.who.load();
  if (who >> 32 != static_cast<std::uint64_t>(getpid())) return followed::before;
  if (entry.sequence.load(std::memory_order_acquire) == current.serial) return followed::before;
  const auto thread = static_cast<long>(who & 0xffff'ffff);
  if (syscall(SYS_tgkill, getpid(), thread, identity_signal) != 0) return followed::before;
  for (unsigned waited_ms = 0; entry.sequence.load(std::memory_order_acquire) != current.serial; ++waited_ms) {
    if (waited_ms == longest_wait_ms) return followed::never;
    pause_for_ms(1);
  }
  return followed::now;
}

}  // namespace

std::uint64_t expect_follower() noexcept {
  process_of_followers.store(getpid());
  expected_followers.fetch_add(1);
  return this_follower != nullptr ? this_follower->sequence.load() : announced.load();
}

void expect_no_follower() noexcept {
  expected_followers.fetch_sub(1);
}

void forget_expected_followers() noexcept {
  mirroring.open_in_child();
  mirroring.assert_held();  // the child has one thread
  expected_followers.store(0);
  current = {};
  announced.store(0);
  for (follower& entry : followers) entry.who.store(0);
}

void follow_identity(std::uint64_t inherited) noexcept {
  const std::uint64_t own = number_of(static_cast<pid_t>(syscall(SYS_gettid)));
  for (follower& entry : followers) {
    std::uint64_t before = entry.who.load();
    if (before >> 32 == own >> 32 || !entry.who.compare_exchange_strong(before, own)) continue;
    entry.sequence.store(inherited);
    this_follower = &entry;
    break;
  }
  expected_followers.fetch_sub(1);
}

void unfollow_identity() noexcept {
  if (this_follower == nullptr) return;
  const lock_guard guard(mirroring);
  this_follower->who.store(0);
  this_follower = nullptr;
}

void wait_for_followers() noexcept {
  static_cast<void>(wait_for_expected_followers());
}

bool follows_identity(pid_t thread) noexcept {
  wait_for_followers();
  const std::uint64_t asked = number_of(thread);
  return std::any_of(followers.begin(), followers.end(), [=](const follower& entry) { return entry.who == asked; });
}

bool mirror_on_runtime_threads(long number, long first, long second, long third, long fourth, long fifth) noexcept {
  // The child of a vfork has its parent's memory, but neither its threads nor its handlers.
  if (process_of_followers.load() != getpid()) return true;
  const signal_shield shield;
  const lock_guard guard(mirroring);
  take_identity_signal();
  if (of_c_library.handler == nullptr) return true;  // no thread was ever started
  if (!wait_for_expected_followers()) return false;
  current = {.serial = current.serial + 1, .number = number, .arguments = {first, second, third, fourth, fifth}};
  announced.store(current.serial, std::memory_order_release);
  // A follower may just have started another one, with the rights of before.
  bool complete = false;
  while (!complete) {
    if (!wait_for_expected_followers()) return false;
    complete = true;
    for (follower& entry : followers) {
      switch (make_follow(entry)) {
        case followed::before: break;
        case followed::now: complete = false; break;
        case followed::never: return false;
      }
    }
  }
  return true;
}

}  // namespace far::platform
