#include "pager/runtime_thread.h"

#include <locale.h>
#include <pthread.h>

#include "platform/thread_identity.h"

namespace far::pager {
namespace {

thread_local unsigned runtime_depth = 0;

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

std::thread start_runtime_thread(const char* name, std::function<void()> body) {
  // The new thread inherits the blocked signals.
  const runtime_section allocate_locally;
  platform::expect_follower();
  return std::thread([name, body = std::move(body)] {
    const runtime_mark for_good;
    platform::let_identity_change();
    platform::follow_identity();
    // The program's locale may have been read into far memory; the C locale is part of the C library.
    uselocale(newlocale(LC_ALL_MASK, "C", locale_t{}));
    pthread_setname_np(pthread_self(), name);
    body();
    platform::unfollow_identity();
  });
}

}  // namespace far::pager
