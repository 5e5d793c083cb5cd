// The names that matter to fault_mode::in_line: what a program does with SIGBUS must not take our misses away, and every
// thread needs a signal stack in local memory, because its own stack may be far.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "base/units.h"
#include "pager/inline_guard.h"
#include "platform/local_memory.h"
#include "preload/runtime.h"

#define FAR_EXPORT __attribute__((visibility("default")))

namespace {

template <typename Function>
Function next_definition(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool guards_sigbus() noexcept { return far::pager::inline_guard_installed(); }

}  // namespace

extern "C" {

FAR_EXPORT int sigaction(int number, const struct sigaction* action, struct sigaction* old) {
  static const auto next = next_definition<int (*)(int, const struct sigaction*, struct sigaction*)>("sigaction");
  if (number != SIGBUS || !guards_sigbus()) return next(number, action, old);
  far::pager::chained_sigbus_action(action, old);
  return 0;
}

FAR_EXPORT sighandler_t signal(int number, sighandler_t handler) {
  static const auto next = next_definition<sighandler_t (*)(int, sighandler_t)>("signal");
  if (number != SIGBUS || !guards_sigbus()) return next(number, handler);
  struct sigaction action {};
  struct sigaction old {};
  action.sa_handler = handler;
  far::pager::chained_sigbus_action(&action, &old);
  return old.sa_handler;
}

// A miss while SIGBUS is blocked would end the process, so it never is.
FAR_EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) {
  static const auto next = next_definition<int (*)(int, const sigset_t*, sigset_t*)>("pthread_sigmask");
  if (set == nullptr || how == SIG_UNBLOCK || !guards_sigbus()) return next(how, set, old);
  sigset_t without_sigbus = *set;
  sigdelset(&without_sigbus, SIGBUS);
  return next(how, &without_sigbus, old);
}

FAR_EXPORT int sigprocmask(int how, const sigset_t* set, sigset_t* old) {
  const int failure = pthread_sigmask(how, set, old);
  if (failure == 0) return 0;
  errno = failure;
  return -1;
}

FAR_EXPORT void _exit(int status) {
  far::preload::report_at_exit();
  static const auto next = next_definition<void (*)(int)>("_exit");
  next(status);
  __builtin_unreachable();
}

FAR_EXPORT void _Exit(int status) { _exit(status); }

FAR_EXPORT void quick_exit(int status) {
  far::preload::report_at_exit();
  static const auto next = next_definition<void (*)(int)>("quick_exit");
  next(status);
  __builtin_unreachable();
}

}  // extern "C"
