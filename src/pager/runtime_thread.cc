#include "pager/runtime_thread.h"

#include <locale.h>
#include <pthread.h>

#include "platform/signal_shield.h"

namespace far::pager {
namespace {

thread_local unsigned runtime_depth = 0;

}  // namespace

bool on_runtime_thread() noexcept {
  return runtime_depth > 0;
}

runtime_section::runtime_section() noexcept {
  ++runtime_depth;
}
runtime_section::~runtime_section() {
  --runtime_depth;
}

std::thread start_runtime_thread(const char* name, std::function<void()> body) {
  const runtime_section allocate_locally;
  // The new thread inherits the blocked signals.
  const platform::signal_shield shield;
  return std::thread([name, body = std::move(body)] {
    const runtime_section for_good;
    platform::let_identity_change();
    // The program's locale may have been read into far memory; the C locale is part of the C library.
    uselocale(newlocale(LC_ALL_MASK, "C", locale_t{}));
    pthread_setname_np(pthread_self(), name);
    body();
  });
}

}  // namespace far::pager
