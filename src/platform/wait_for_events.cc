#include "platform/wait_for_events.h"

#include <sys/select.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace far::platform {
namespace {

bool can_be_selected(int descriptor) {
  return descriptor >= 0 && descriptor < FD_SETSIZE;
}

int select_events(std::span<pollfd> watched, std::int64_t timeout_ns, const timespec* timeout) {
  constexpr timespec soon{0, 1'000'000};
  fd_set readable;
  fd_set writable;
  FD_ZERO(&readable);
  FD_ZERO(&writable);
  int end = 0;
  for (pollfd& one : watched) {
    one.revents = 0;
    if (one.fd >= FD_SETSIZE && (timeout_ns < 0 || timeout_ns > soon.tv_nsec)) timeout = &soon;  // look again then
    if (!can_be_selected(one.fd)) continue;
    if ((one.events & POLLIN) != 0) FD_SET(one.fd, &readable);
    if ((one.events & POLLOUT) != 0) FD_SET(one.fd, &writable);
    end = std::max(end, one.fd + 1);
  }
  const int found = pselect(end, &readable, &writable, nullptr, timeout, nullptr);
  if (found <= 0) return found;
  for (pollfd& one : watched) {
    if (!can_be_selected(one.fd)) continue;
    const int read = FD_ISSET(one.fd, &readable) ? POLLIN : 0;
    const int write = FD_ISSET(one.fd, &writable) ? POLLOUT : 0;
    one.revents = static_cast<short>(read | write);
  }
  return static_cast<int>(std::count_if(watched.begin(), watched.end(), [](auto& one) { return one.revents != 0; }));
}

}  // namespace

int wait_for_events(std::span<pollfd> watched, std::int64_t timeout_ns) noexcept {
  constexpr std::int64_t second = 1'000'000'000;
  const timespec time{static_cast<std::time_t>(timeout_ns / second), static_cast<long>(timeout_ns % second)};
  const timespec* const timeout = timeout_ns < 0 ? nullptr : &time;
  const int ready = ppoll(watched.data(), watched.size(), timeout, nullptr);
  return ready < 0 && errno == EINVAL ? select_events(watched, timeout_ns, timeout) : ready;
}

}  // namespace far::platform
