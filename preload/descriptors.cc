// The functions that close descriptors, or part the table of them from that of other threads. Daemons and shells close
// all that they do not know. The runtime's must survive that, because without its userfaultfd, memory that is not
// resident would read as zeros.
#include "preload/descriptors.h"

#include <errno.h>  // for program_invocation_short_name
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>

#include "base/log.h"
#include "far/detail/api.h"
#include "platform/own_descriptors.h"
#include "platform/runtime_thread.h"
#include "preload/in_runtime.h"
#include "preload/next_function.h"
#include "preload/runtime.h"
#include "preload/thread_ends.h"

namespace far::preload {
namespace {

constexpr unsigned highest_noted = 1023;  // own_descriptors notes no number above

int refuse() {
  errno = EBADF;
  return -1;
}

bool is_protected(long descriptor) {
  const auto number = static_cast<int>(descriptor);  // as the kernel takes it
  return platform::is_own_descriptor(number) && !platform::on_runtime_thread();
}

// What a program with one thread has for itself anyway: to ask for it changes nothing. With ours beside it there would
// be two tables of descriptors, of which ours would not have what the program's thread opens for the runtime, nor the
// other way. The rest the kernel would refuse.
constexpr long of_one_thread = CLONE_FILES | CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;

bool is_alone_here() {
  if (active_pager() == nullptr || platform::on_runtime_thread()) return false;
  const int saved_errno = errno;
  const bool is_alone = is_only_thread();
  errno = saved_errno;
  return is_alone;
}

// Before a call that the kernel is about to refuse: it gives a user namespace only to a process with one thread, and
// those of the runtime count.
void note_user_namespace(long kinds) {
  static std::atomic<bool> is_said{false};
  if ((kinds & CLONE_NEWUSER) == 0 || !is_alone_here() || platform::runtime_threads() == 0) return;
  if (is_said.exchange(true)) return;
  in_runtime([] {
    log_line(
        log_level::warning,
        "process %d (%s) wants a user namespace of its own, which the kernel refuses a process with threads, and the "
        "runtime has some: let it make a child in one (clone with CLONE_NEWUSER), or start it without farheap by "
        "'env -u LD_PRELOAD'",
        static_cast<int>(getpid()), program_invocation_short_name);
  });
}

void note_closing(long descriptor) {
  note_standard_error(descriptor, false);
}

// After the call: while it has not succeeded, the number may be the program's for something else.
int note_copy(int descriptor) {
  note_standard_error(descriptor, true);
  return descriptor;
}

// Closes the descriptors between ours.
int close_others(unsigned first, unsigned last, unsigned flags) {
  if (first <= STDERR_FILENO && last >= STDERR_FILENO && (flags & CLOSE_RANGE_CLOEXEC) == 0)
    note_closing(STDERR_FILENO);
  if ((flags & CLOSE_RANGE_UNSHARE) != 0 && is_alone_here()) flags &= ~unsigned{CLOSE_RANGE_UNSHARE};
  if (first > last) return static_cast<int>(syscall(SYS_close_range, first, last, flags));
  unsigned start = first;
  for (unsigned number = first; number <= std::min(last, highest_noted); ++number) {
    if (!is_protected(number)) continue;
    if (number > start && syscall(SYS_close_range, start, number - 1, flags) != 0) return -1;
    start = number + 1;
  }
  return start > last ? 0 : static_cast<int>(syscall(SYS_close_range, start, last, flags));
}

bool replaces(long number, const std::array<long, 6>& arguments) {
  const auto from = static_cast<int>(arguments[0]);
  const auto to = static_cast<int>(arguments[1]);
  return number == SYS_dup3 || (number == SYS_dup2 && from != to);
}

// Whether the call asks for the number of standard error: so shells and daemons give it again. A copy that gets it as
// the lowest free one may be for anything, and one that is closed at exec is not for it.
bool asks_for_standard_error(int command, long least_number) {
  return command == F_DUPFD && static_cast<int>(least_number) == STDERR_FILENO;
}

// Calls that may give standard error again.
bool may_give(long number, const std::array<long, 6>& arguments) {
  return replaces(number, arguments) ||
         (number == SYS_fcntl && asks_for_standard_error(static_cast<int>(arguments[1]), arguments[2]));
}

using control_function = int (*)(int, int, ...);

int control(control_function next, int descriptor, int command, void* argument) {
  const int result = next(descriptor, command, argument);
  return asks_for_standard_error(command, reinterpret_cast<long>(argument)) ? note_copy(result) : result;
}

}  // namespace

void note_standard_error(long descriptor, bool is_open) noexcept {
  if (static_cast<int>(descriptor) != STDERR_FILENO || platform::on_runtime_thread() || in_borrowed_memory()) return;
  set_log_open(is_open);
}

int number_of(FILE* stream) noexcept {
  const int saved_errno = errno;
  const int number = fileno(stream);
  errno = saved_errno;
  return number;
}

void spare_own_descriptor(FILE* stream) noexcept {
  if (!is_protected(number_of(stream))) return;
  stream->_fileno = -1;
  errno = EBADF;
}

bool serve_descriptor_call(long number, const std::array<long, 6>& arguments, long* result) noexcept {
  const bool is_refused = (number == SYS_close && is_protected(arguments[0])) ||
                          (replaces(number, arguments) && is_protected(arguments[1]));
  if (is_refused) {
    *result = -EBADF;
    return true;
  }
  if (number == SYS_close) note_closing(arguments[0]);
  if (may_give(number, arguments)) {
    const long copy = syscall(number, arguments[0], arguments[1], arguments[2]);
    *result = copy < 0 ? -errno : note_copy(static_cast<int>(copy));
    return true;
  }
  if (number == SYS_unshare) note_user_namespace(arguments[0]);
  if (number == SYS_unshare && (arguments[0] & of_one_thread) != 0 && is_alone_here()) {
    const long left = syscall(SYS_unshare, arguments[0] & ~of_one_thread);
    *result = left == 0 ? 0 : -errno;
    return true;
  }
  if (number != SYS_close_range) return false;
  const int closed = close_others(static_cast<unsigned>(arguments[0]), static_cast<unsigned>(arguments[1]),
                                  static_cast<unsigned>(arguments[2]));
  *result = closed == 0 ? 0 : -errno;
  return true;
}

}  // namespace far::preload

using far::preload::is_protected;
using far::preload::note_closing;
using far::preload::note_copy;
using far::preload::refuse;

extern "C" {

// To the program, a descriptor of ours does not exist.
FAR_API int close(int descriptor) {
  if (is_protected(descriptor)) return refuse();
  const auto next = far::preload::next<"close", int (*)(int)>();
  far::platform::disown_descriptor(descriptor);
  note_closing(descriptor);
  return next(descriptor);
}

FAR_API int dup2(int from, int to) {
  if (from != to && is_protected(to)) return refuse();
  const auto next = far::preload::next<"dup2", int (*)(int, int)>();
  return from == to ? next(from, to) : note_copy(next(from, to));
}

FAR_API int dup3(int from, int to, int flags) {
  if (is_protected(to)) return refuse();
  const auto next = far::preload::next<"dup3", int (*)(int, int, int)>();
  return note_copy(next(from, to, flags));
}

FAR_API int fcntl(int descriptor, int command, ...) {
  std::va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  const auto next = far::preload::next<"fcntl", far::preload::control_function>();
  return far::preload::control(next, descriptor, command, argument);
}

FAR_API int fcntl64(int descriptor, int command, ...) {
  std::va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  const auto next = far::preload::next<"fcntl64", far::preload::control_function>();
  return far::preload::control(next, descriptor, command, argument);
}

// The C library closes the descriptor by no name that others see.
FAR_API int fclose(FILE* stream) {
  const auto next = far::preload::next<"fclose", int (*)(FILE*)>();
  far::preload::spare_own_descriptor(stream);
  note_closing(far::preload::number_of(stream));
  return next(stream);
}

FAR_API int close_range(unsigned first, unsigned last, int flags) {
  return far::preload::close_others(first, last, static_cast<unsigned>(flags));
}

FAR_API int unshare(int flags) noexcept {
  const auto next = far::preload::next<"unshare", int (*)(int)>();
  using far::preload::of_one_thread;
  far::preload::note_user_namespace(flags);
  if ((flags & of_one_thread) != 0 && far::preload::is_alone_here()) flags &= static_cast<int>(~of_one_thread);
  return next(flags);
}

FAR_API void closefrom(int first) {
  // Like the C library's: it cannot fail.
  static_cast<void>(close_range(static_cast<unsigned>(std::max(first, 0)), ~0U, 0));
}

}  // extern "C"
