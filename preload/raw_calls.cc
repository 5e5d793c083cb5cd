#include "preload/raw_calls.h"

#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstring>

#include "base/log.h"
#include "base/units.h"
#include "far/detail/api.h"
#include "platform/call_on_stack.h"
#include "platform/runtime_thread.h"
#include "preload/descriptors.h"
#include "preload/fork.h"
#include "preload/identity.h"
#include "preload/in_runtime.h"
#include "preload/memory_calls.h"
#include "preload/memory_file.h"
#include "preload/next_function.h"
#include "preload/program_memory.h"
#include "preload/resource_limits.h"
#include "preload/restricted_program.h"
#include "preload/runtime.h"
#include "preload/shared_segments.h"
#if defined(__x86_64__)
#include "preload/signals.h"
#include "preload/syscall_stubs.h"
#endif
#include "preload/thread_ends.h"

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_mseal
#define SYS_mseal 462
#endif

namespace far::preload {
namespace {

using kernel_call = long (*)(long number, long a, long b, long c, long d, long e, long f);

template <typename Value>
Value* pointer_to(long argument) {
  return reinterpret_cast<Value*>(argument);
}

std::size_t size_of(long argument) {
  return static_cast<std::size_t>(argument);
}

int number_of(long argument) {
  return static_cast<int>(argument);
}

long raw_result(const void* mapped) {
  return mapped == MAP_FAILED ? -errno : reinterpret_cast<long>(mapped);
}

long raw_result(long result) {
  return result < 0 ? -errno : result;
}

// Of a call that opens a file.
const char* opened_path(long number, const call_arguments& arguments) {
  switch (number) {
#if defined(SYS_open)
    case SYS_open: return pointer_to<const char>(arguments[0]);
#endif
    case SYS_openat:
    case 437 /* openat2 */: return pointer_to<const char>(arguments[1]);
    default: return nullptr;
  }
}

bool is_memory_call(long number) noexcept {
  switch (number) {
    case SYS_mmap:
    case SYS_munmap:
    case SYS_shmat:
    case SYS_shmdt:
    case SYS_mprotect:
    case SYS_pkey_mprotect:
    case SYS_mseal:
    case SYS_madvise:
    case SYS_mremap:
    case SYS_mlock:
    case SYS_mlock2:
    case SYS_munlock:
    case SYS_mlockall:
    case SYS_munlockall:
    case SYS_mincore:
    case SYS_msync:
    case SYS_process_madvise: return true;
    default: return false;
  }
}

// Raw calls go through the same functions as those of the C library; only the way in which errors are returned differs.
bool serve_memory_call(long number, const call_arguments& given, long* result) noexcept {
  void* const address = pointer_to<void>(given[0]);
  const std::size_t bytes = size_of(given[1]);
  const int third = number_of(given[2]);
  switch (number) {
    case SYS_mmap:
      *result = raw_result(map(address, bytes, third, number_of(given[3]), number_of(given[4]), given[5]));
      break;
    case SYS_shmat:
      *result = raw_result(attach_segment(number_of(given[0]), pointer_to<const void>(given[1]), third));
      break;
    case SYS_shmdt: *result = raw_result(detach_segment(address)); break;
    case SYS_munmap: *result = raw_result(unmap(address, bytes)); break;
    case SYS_mprotect: *result = raw_result(protect(address, bytes, third)); break;
    case SYS_pkey_mprotect: *result = raw_result(protect(address, bytes, third, number_of(given[3]))); break;
    case SYS_mseal: *result = raw_result(seal(address, bytes, static_cast<unsigned long>(given[2]))); break;
    case SYS_madvise: *result = raw_result(advise(address, bytes, third)); break;
    case SYS_mremap:
      *result = raw_result(remap(address, bytes, size_of(given[2]), number_of(given[3]), pointer_to<void>(given[4])));
      break;
    case SYS_mlock: *result = raw_result(lock(address, bytes, 0)); break;
    case SYS_mlock2: *result = raw_result(lock(address, bytes, static_cast<unsigned>(given[2]))); break;
    case SYS_munlock: *result = raw_result(unlock(address, bytes)); break;
    case SYS_mlockall: *result = raw_result(lock_all(number_of(given[0]))); break;
    case SYS_munlockall: *result = raw_result(unlock_all()); break;
    case SYS_process_madvise:
      *result = raw_result(advise_process(number_of(given[0]), pointer_to<const iovec>(given[1]), size_of(given[2]),
                                          number_of(given[3]), static_cast<unsigned>(given[4])));
      break;
    case SYS_mincore:
      if (!has_far_hole(address, bytes)) return false;
      *result = raw_result(find_resident_before_hole(address, bytes, pointer_to<unsigned char>(given[2])));
      break;
    case SYS_msync:
      if (!has_far_hole(address, bytes)) return false;
      *result = raw_result(sync_around_holes(address, bytes, third));
      break;
    case SYS_prlimit64:
      if (!is_own_limit(number_of(given[0]), number_of(given[1]))) return false;
      *result = raw_result(
          change_limit(number_of(given[1]), pointer_to<const rlimit>(given[2]), pointer_to<rlimit>(given[3])));
      break;
    case SYS_setrlimit:
      if (!is_own_limit(0, number_of(given[0]))) return false;
      *result = raw_result(change_limit(number_of(given[0]), pointer_to<const rlimit>(given[1]), nullptr));
      break;
    case SYS_getrlimit:
      if (!is_own_limit(0, number_of(given[0]))) return false;
      *result = raw_result(change_limit(number_of(given[0]), nullptr, pointer_to<rlimit>(given[1])));
      break;
    default: return false;
  }
  return true;
}

// The C library's syscall(), for all calls inside this library (the linker's --wrap) and for those that we pass on.
kernel_call c_library_syscall() noexcept {
  return next<"syscall", kernel_call>();
}

long ask_c_library(long number, const call_arguments& given) {
  const long result = c_library_syscall()(number, given[0], given[1], given[2], given[3], given[4], given[5]);
  return result == -1 ? -errno : result;
}

// The kernel changes some words of futexes itself, and does not wait for a page to do so (Linux 6.18).
bool changes_words(long number, const call_arguments& arguments) {
  constexpr int lock_pi_by_clock = 13;  // FUTEX_LOCK_PI2, since Linux 5.14
  if (number != SYS_futex) return false;
  switch (number_of(arguments[1]) & FUTEX_CMD_MASK) {
    case FUTEX_WAKE_OP:
    case FUTEX_LOCK_PI:
    case FUTEX_UNLOCK_PI:
    case FUTEX_TRYLOCK_PI:
    case FUTEX_CMP_REQUEUE_PI:
    case FUTEX_WAIT_REQUEUE_PI:
    case lock_pi_by_clock: return true;
    default: return false;
  }
}

// Whether there is a second one. To other operations this argument is a register that may hold anything.
bool has_other_word(const call_arguments& arguments) {
  switch (number_of(arguments[1]) & FUTEX_CMD_MASK) {
    case FUTEX_WAKE_OP:
    case FUTEX_CMP_REQUEUE_PI:
    case FUTEX_WAIT_REQUEUE_PI: return true;
    default: return false;
  }
}

// Makes such words resident, and writable as far as they may be. Returns whether any is far.
bool prepare_words(const call_arguments& arguments) {
  const pager::pager* const far = active_pager();
  bool any = false;
  for (const long address : {arguments[0], has_other_word(arguments) ? arguments[4] : 0}) {
    auto* const word = pointer_to<std::uint32_t>(address);
    if (far == nullptr || !far->contains(word) || static_cast<std::uint64_t>(address) % sizeof *word != 0) continue;
    const auto look = [&] { return far->mapping_at(reinterpret_cast<std::byte*>(word), page_bytes); };
    const result<pager::pager::mapping> found = in_runtime(look);
    if (!found || found.value().guarded || (found.value().protection & PROT_WRITE) == 0) continue;
    std::atomic_ref(*word).fetch_or(0);
    any = true;
  }
  return any;
}

// Such a call, which fails with EFAULT where a word is remote, or must not be written to yet.
long change_words(const call_arguments& given) {
  constexpr int most_attempts = 20;  // a word may leave again before the kernel gets to it
  long result = ask_c_library(SYS_futex, given);
  for (int i = 0; i < most_attempts && result == -EFAULT && prepare_words(given); ++i) {
    result = ask_c_library(SYS_futex, given);
  }
  return result;
}

struct child_request {
  child_call call;
  long result;
};

long make_child_by_name(const child_call& call) {
  child_request request{call, 0};
  const auto make = [](void* context) {
    const child_call local = static_cast<child_request*>(context)->call;  // the request itself may be far
    static_cast<child_request*>(context)->result = make_copied_child(local, ask_c_library);
  };
  if (stack_is_far()) {
    call_on_local_stack(make, &request);
  } else {
    make(&request);
  }
  return request.result;
}

struct function_on_stack {
  int (*body)(void*);
  void* argument;
};

// The child of clone(3): calls its function on the stack that it was given, and ends there. That stack may lie above
// our own frame, in its parent's (the collector of D forks so), and the function then writes over all that is below.
[[noreturn]] void run_clone(function_on_stack call, void* stack) {
  static function_on_stack only;  // one thread of the program gets here in a process
  only = call;
  auto* const top = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(stack) & ~std::uintptr_t{15});
  platform::call_on_stack(
      [](void*) {
        const int status = only.body(only.argument);
        end_thread_without_c_library(status);
        while (true) static_cast<void>(ask_c_library(SYS_exit, {status}));
      },
      nullptr, top);
  __builtin_unreachable();
}

child_call child_of_clone(int flags, pid_t* parent_id, void* tls, pid_t* child_id) {
  call_arguments arguments{flags, 0, reinterpret_cast<long>(parent_id)};
#if defined(__x86_64__)
  arguments[3] = reinterpret_cast<long>(child_id);
  arguments[4] = reinterpret_cast<long>(tls);
#else
  arguments[3] = reinterpret_cast<long>(tls);
  arguments[4] = reinterpret_cast<long>(child_id);
#endif
  return *read_child_call(SYS_clone, arguments);
}

constexpr std::uint64_t clears_handlers = std::uint64_t{1} << 32;  // CLONE_CLEAR_SIGHAND

bool is_far(std::uint64_t address) {
  return address != 0 && active_pager()->contains(reinterpret_cast<const void*>(address));
}

void store(std::uint64_t address, int number) {
  *reinterpret_cast<int*>(address) = number;
}

// A call that makes a child with memory of its own, as the kernel gets it. The kernel must touch no far memory then:
// the fork holds the locks of misses, and in the child nothing serves them yet. So what it would store there comes into
// local memory, or is left out, and pass_on() stores it.
class copying_call {
 public:
  explicit copying_call(const child_call& call) : call_(call), given_(call.arguments) {
    // The parent holds locks until the child is made, so it cannot wait for the child to call exec. It could not notice
    // that anyway, because they do not share memory.
    std::uint64_t left_out = CLONE_VFORK;
    if (is_far(call.child_id)) left_out |= CLONE_CHILD_SETTID;
    if (call.number == SYS_clone) {
      given_[0] = static_cast<long>(call.flags & ~left_out);
      given_[1] = 0;
      if (is_far(call.parent_id | call.descriptor)) given_[2] = reinterpret_cast<long>(&first_);
    }
    if (call.number != SYS_clone3) return;
    const std::size_t bytes = std::min(size_of(given_[1]), sizeof asked_);
    std::memcpy(&asked_, pointer_to<const void>(given_[0]), bytes);
    asked_.flags &= ~left_out;
    asked_.stack = 0;
    asked_.stack_size = 0;
    if (is_far(asked_.set_tid) && asked_.set_tid_size <= ids_.size()) {
      std::memcpy(ids_.data(), pointer_to<const void>(static_cast<long>(asked_.set_tid)),
                  asked_.set_tid_size * sizeof(pid_t));
      asked_.set_tid = reinterpret_cast<std::uint64_t>(ids_.data());
    }
    if (is_far(call.parent_id)) asked_.parent_tid = reinterpret_cast<std::uint64_t>(&first_);
    if (is_far(call.descriptor)) asked_.pidfd = reinterpret_cast<std::uint64_t>(&second_);
    given_[0] = reinterpret_cast<long>(&asked_);
    given_[1] = static_cast<long>(bytes);
  }
  copying_call(const copying_call&) = delete;
  copying_call& operator=(const copying_call&) = delete;

  [[nodiscard]] const call_arguments& arguments() const { return given_; }

  // Where misses are served again, on both sides.
  void pass_on(long result) const {
    if (result < 0) return;
    if (result == 0) {
      if (is_far(call_.child_id))
        store(call_.child_id, static_cast<int>(c_library_syscall()(SYS_gettid, 0, 0, 0, 0, 0, 0)));
      return;
    }
    if (is_far(call_.parent_id)) store(call_.parent_id, first_);
    if (is_far(call_.descriptor)) store(call_.descriptor, call_.number == SYS_clone3 ? second_ : first_);
  }

 private:
  const child_call& call_;
  call_arguments given_;
  clone_args asked_{};
  std::array<pid_t, 32> ids_{};  // a number in each namespace, of which there are at most as many
  int first_ = 0;
  int second_ = 0;
};

}  // namespace

bool serve_raw_call(long number, const call_arguments& arguments, long* result) noexcept {
  if (active_pager() == nullptr || platform::on_runtime_thread()) return false;
  const int saved_errno = errno;
  bool served = false;
  if (is_exec(number)) {
    tell_before_exec();
  } else if (number == SYS_exit_group) {
    report_at_exit();
  } else if (number == SYS_exit) {
    end_thread_without_c_library(number_of(arguments[0]));
  } else if (restricts_calls(number, arguments[0])) {
    note_restriction();
  } else if (number == SYS_setns) {
    leave_folders_to_program();
  } else if (number == SYS_prctl) {
    const auto rest = [&](std::size_t index) { return static_cast<unsigned long>(arguments[index]); };
    served = serve_request(number_of(arguments[0]), {rest(1), rest(2), rest(3), rest(4)}, result);
  } else if (changes_words(number, arguments)) {
    static_cast<void>(prepare_words(arguments));
  } else {
    if (const char* const path = opened_path(number, arguments)) note_opening(path);
    served = serve_memory_call(number, arguments, result) || serve_memory_file(number, arguments, result) ||
             serve_descriptor_call(number, arguments, result);
  }
  errno = saved_errno;
  return served;
}

bool is_exec(long number) noexcept {
  return number == SYS_execve || number == SYS_execveat;
}

bool makes_child(long number) noexcept {
  switch (number) {
#if defined(SYS_fork)
    case SYS_fork:
    case SYS_vfork:
#endif
    case SYS_clone:
    case SYS_clone3: return true;
    default: return false;
  }
}

// Brings the four calls that make children, and their argument orders on different machines, into one form.
std::optional<child_call> read_child_call(long number, const call_arguments& arguments) noexcept {
  child_call call{.number = number, .arguments = arguments};
#if defined(SYS_vfork)
  if (number == SYS_vfork) call.flags = CLONE_VM | CLONE_VFORK;
#endif
  if (number == SYS_clone) {
#if defined(__x86_64__)
    constexpr std::size_t tls_at = 4;
#else
    constexpr std::size_t tls_at = 3;
#endif
    constexpr std::size_t child_id_at = 7 - tls_at;
    const auto argument = [&arguments](std::size_t at) { return static_cast<std::uint64_t>(arguments[at]); };
    call.flags = static_cast<std::uint32_t>(arguments[0]);
    call.stack = argument(1);
    call.tls = argument(tls_at);
    if ((call.flags & CLONE_PARENT_SETTID) != 0) call.parent_id = argument(2);
    if ((call.flags & CLONE_PIDFD) != 0) call.descriptor = argument(2);
    if ((call.flags & CLONE_CHILD_SETTID) != 0) call.child_id = argument(child_id_at);
  }
  if (number == SYS_clone3) {
    clone_args asked{};
    const std::size_t bytes = std::min(size_of(arguments[1]), sizeof asked);
    if (bytes < CLONE_ARGS_SIZE_VER0 || size_of(arguments[1]) > page_bytes) return std::nullopt;
    if (!load_bytes(&asked, pointer_to<const void>(arguments[0]), bytes)) return std::nullopt;
    call.flags = asked.flags;
    call.stack = asked.stack == 0 ? 0 : asked.stack + asked.stack_size;
    call.tls = asked.tls;
    if ((call.flags & CLONE_PARENT_SETTID) != 0) call.parent_id = asked.parent_tid;
    if ((call.flags & CLONE_PIDFD) != 0) call.descriptor = asked.pidfd;
    if ((call.flags & CLONE_CHILD_SETTID) != 0) call.child_id = asked.child_tid;
  }
  return call;
}

bool resets_actions(const child_call& call) noexcept {
  return (call.flags & clears_handlers) != 0;
}

bool copies_memory(const child_call& call) noexcept {
  return (call.flags & CLONE_VM) == 0 && active_pager() != nullptr && !platform::on_runtime_thread() &&
         !fork_is_under_way();
}

// A child with a copy of the memory needs everything that fork() does, so the call is made inside the fork protocol.
// The caller sets the child's stack, if there is to be one.
long make_copied_child(const child_call& call, long (*kernel)(long number, const call_arguments&)) {
  // A child replaces the runtime's descriptors by its own, under the same numbers. In a table that it shared with its
  // parent, the parent's misses would be resolved in the child's memory.
  if ((call.flags & (CLONE_SETTLS | CLONE_FILES)) != 0) {
    log_line(log_level::error,
             "a clone with memory of its own and %s cannot be served with far memory and fails; use fork",
             (call.flags & CLONE_SETTLS) != 0 ? "other thread-local storage" : "its parent's descriptors");
    return -EINVAL;
  }
  const copying_call copying(call);
  begin_fork();
  const long result = kernel(call.number, copying.arguments());
#if defined(__x86_64__)
  if (result == 0 && resets_actions(call)) reset_actions_in_child();
#endif
  result == 0 ? end_fork_in_child() : end_fork_in_parent();
  copying.pass_on(result);
  return result;
}

}  // namespace far::preload

extern "C" {

// The syscall() that this library itself calls. Calls about memory go straight to the kernel, because here they would
// be taken for the program's.
__attribute__((visibility("hidden"))) long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  if (far::preload::is_memory_call(number)) {
    const long result = far_raw_syscall(number, a, b, c, d, e, f);
    if (result >= 0 || result < -4095) return result;
    errno = static_cast<int>(-result);
    return -1;
  }
#endif
  return far::preload::c_library_syscall()(number, a, b, c, d, e, f);
}

// Declared without "...", so that passing a call on is a jump: a child may return on another stack.
FAR_API long far_program_syscall(long number, long a, long b, long c, long d, long e, long f) asm("syscall");
long far_program_syscall(long number, long a, long b, long c, long d, long e, long f) {
  using namespace far::preload;
  long result = 0;
  bool served = serve_raw_call(number, {a, b, c, d, e, f}, &result);
  if (!served && makes_child(number)) {
    const std::optional<child_call> call = read_child_call(number, {a, b, c, d, e, f});
    if (call && copies_memory(*call) && call->stack == 0) {
      result = make_child_by_name(*call);
      served = true;
    }
  }
  const bool is_limited = is_exec(number) && limits_before_exec();
  if (!served && changes_words(number, {a, b, c, d, e, f})) {
    result = change_words({a, b, c, d, e, f});
    served = true;
  }
  if (!served && !is_limited) return c_library_syscall()(number, a, b, c, d, e, f);
  if (is_limited) {
    result = ask_c_library(number, {a, b, c, d, e, f});  // it fails
    limits_after_exec();
  }
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// A child with a copy of our memory is served like that of a fork; threads and processes that share our memory need
// nothing.
FAR_API int clone(int (*body)(void*), void* stack, int flags, void* argument, ...) {
  using namespace far::preload;
  std::va_list rest;
  va_start(rest, argument);
  auto* const parent_id = va_arg(rest, pid_t*);
  void* const tls = va_arg(rest, void*);
  auto* const child_id = va_arg(rest, pid_t*);
  va_end(rest);
  const child_call call = child_of_clone(flags, parent_id, tls, child_id);
  if (body == nullptr || stack == nullptr || !copies_memory(call)) {
    const auto next = far::preload::next<"clone", int (*)(int (*)(void*), void*, int, void*, pid_t*, void*, pid_t*)>();
    return next(body, stack, flags, argument, parent_id, tls, child_id);
  }
  const long child = make_child_by_name(call);
  if (child == 0) run_clone({body, argument}, stack);
  if (child > 0) return static_cast<int>(child);
  errno = static_cast<int>(-child);
  return -1;
}

}  // extern "C"
