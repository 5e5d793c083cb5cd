// The functions that change signal handlers and masks, in fault_mode::thread. Where raw system calls are noticed,
// SIGSYS is ours, and a thread that blocked it would die of its next raw call. (In fault_mode::in_line the guard sees
// the system calls of these functions instead.)
#include <signal.h>

#include <cerrno>
#include <cstring>

#include "far/detail/api.h"
#include "preload/next_function.h"
#include "preload/signals.h"
#include "preload/syscall_guard.h"

namespace {

// A copy of `given` without SIGSYS; null if that is null.
const sigset_t* without_sigsys(const sigset_t* given, sigset_t& copy) {
  if (given == nullptr || !far::preload::takes_sigsys()) return given;
  copy = *given;
  sigdelset(&copy, SIGSYS);
  return &copy;
}

far::preload::kernel_action to_kernel(const struct sigaction& action) {
  far::preload::kernel_action same{};
  same.handler = reinterpret_cast<void*>(action.sa_handler);
  same.flags = static_cast<unsigned long>(action.sa_flags);
  std::memcpy(&same.mask, &action.sa_mask, sizeof same.mask);
  return same;
}

void exchange_sigsys(const struct sigaction* action, struct sigaction* old) {
  far::preload::kernel_action before{};
  const far::preload::kernel_action asked = action != nullptr ? to_kernel(*action) : far::preload::kernel_action{};
  far::preload::exchange_program_action(SIGSYS, action != nullptr ? &asked : nullptr, &before);
  if (old == nullptr) return;
  *old = {};
  old->sa_handler = reinterpret_cast<sighandler_t>(before.handler);
  old->sa_flags = static_cast<int>(before.flags);
  std::memcpy(&old->sa_mask, &before.mask, sizeof before.mask);
}

using signal_function = sighandler_t (*)(int, sighandler_t);

sighandler_t set_handler(signal_function next, int number, sighandler_t handler) {
  if (number != SIGSYS || !far::preload::takes_sigsys()) return next(number, handler);
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = handler;
  exchange_sigsys(&action, &before);
  return before.sa_handler;
}

}  // namespace

extern "C" {

FAR_API int sigaction(int number, const struct sigaction* action, struct sigaction* old) {
  const auto next = far::preload::next<"sigaction", int (*)(int, const struct sigaction*, struct sigaction*)>();
  if (!far::preload::takes_sigsys()) return next(number, action, old);
  if (number == SIGSYS) {
    exchange_sigsys(action, old);
    return 0;
  }
  if (action == nullptr) return next(number, action, old);
  struct sigaction copy = *action;
  sigdelset(&copy.sa_mask, SIGSYS);
  return next(number, &copy, old);
}

FAR_API sighandler_t signal(int number, sighandler_t handler) {
  const auto next = far::preload::next<"signal", signal_function>();
  return set_handler(next, number, handler);
}

FAR_API int sigprocmask(int how, const sigset_t* set, sigset_t* old) {
  const auto next = far::preload::next<"sigprocmask", int (*)(int, const sigset_t*, sigset_t*)>();
  sigset_t copy;
  return next(how, how == SIG_UNBLOCK ? set : without_sigsys(set, copy), old);
}

FAR_API int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) {
  const auto next = far::preload::next<"pthread_sigmask", int (*)(int, const sigset_t*, sigset_t*)>();
  sigset_t copy;
  return next(how, how == SIG_UNBLOCK ? set : without_sigsys(set, copy), old);
}

FAR_API int sigsuspend(const sigset_t* set) {
  const auto next = far::preload::next<"sigsuspend", int (*)(const sigset_t*)>();
  sigset_t copy;
  return next(without_sigsys(set, copy));
}

}  // extern "C"
