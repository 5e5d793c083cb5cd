// The functions that close descriptors. Daemons and shells close all that they do not know. The runtime's must survive
// that, because without its userfaultfd, memory that is not resident would read as zeros.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "far/detail/api.h"
#include "platform/own_descriptors.h"
#include "platform/runtime_thread.h"

namespace {

constexpr unsigned highest_noted = 1023;  // own_descriptors notes no number above

int refuse() {
  errno = EBADF;
  return -1;
}

bool is_protected(int descriptor) {
  return far::platform::is_own_descriptor(descriptor) && !far::platform::on_runtime_thread();
}

}  // namespace

extern "C" {

// To the program, a descriptor of ours does not exist.
FAR_API int close(int descriptor) {
  if (is_protected(descriptor)) return refuse();
  using function = int (*)(int);
  static const auto next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "close"));
  far::platform::disown_descriptor(descriptor);
  return next(descriptor);
}

FAR_API int dup2(int from, int to) {
  if (from != to && is_protected(to)) return refuse();
  using function = int (*)(int, int);
  static const auto next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "dup2"));
  return next(from, to);
}

FAR_API int dup3(int from, int to, int flags) {
  if (is_protected(to)) return refuse();
  using function = int (*)(int, int, int);
  static const auto next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "dup3"));
  return next(from, to, flags);
}

// Closes the descriptors between ours.
FAR_API int close_range(unsigned first, unsigned last, int flags) {
  if (first > last) return static_cast<int>(syscall(SYS_close_range, first, last, flags));
  unsigned start = first;
  for (unsigned number = first; number <= std::min(last, highest_noted); ++number) {
    if (!is_protected(static_cast<int>(number))) continue;
    if (number > start && syscall(SYS_close_range, start, number - 1, flags) != 0) return -1;
    start = number + 1;
  }
  return start > last ? 0 : static_cast<int>(syscall(SYS_close_range, start, last, flags));
}

FAR_API void closefrom(int first) {
  // Like the C library's: it cannot fail.
  static_cast<void>(close_range(static_cast<unsigned>(std::max(first, 0)), ~0U, 0));
}

}  // extern "C"
