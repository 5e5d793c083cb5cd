#include "platform/runtime_thread.h"

#include <locale.h>
#include <pthread.h>

#include <atomic>
#include <system_error>
#include <utility>

#include "platform/thread_identity.h"

namespace far::platform {
namespace {

thread_local unsigned runtime_depth = 0;
std::atomic<unsigned> threads_started{0};  // and not ended

}  // namespace

bool on_runtime_thread() noexcept {
  return runtime_depth > 0;
}

runtime_mark::runtime_mark() noexcept {
  ++runtime_depth;
}
runtime_mark::~runtime_mark() {
  --runtime_depth;
}

unsigned runtime_threads() noexcept {
  return threads_started.load(std::memory_order_relaxed);
}

void forget_runtime_threads() noexcept {
  threads_started.store(0);
}

std::thread start_runtime_thread(const char* name, std::function<void()> body) {
  // The new thread inherits the blocked signals. Not the C library's: its setuid() may hold the lock that we need for a
  // stack, and wait for this thread.
  const runtime_section allocate_locally;
  let_identity_change();
  const std::uint64_t inherited = expect_follower();
  threads_started.fetch_add(1);
  try {
    return std::thread([name, inherited, body = std::move(body)] {
      const runtime_mark for_good;
      follow_identity(inherited);
      let_identity_change();
      // The program's locale may have been read into far memory; the C locale is part of the C library.
      uselocale(newlocale(LC_ALL_MASK, "C", locale_t{}));
      pthread_setname_np(pthread_self(), name);
      body();
      unfollow_identity();
      threads_started.fetch_sub(1);
    });
  } catch (const std::system_error&) {
    threads_started.fetch_sub(1);
    expect_no_follower();
    throw;
  }
}

}  // namespace far::platform
