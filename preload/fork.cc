#include "preload/fork.h"

#include <errno.h>  // for program_invocation_short_name
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "far/detail/api.h"
#include "pager/compiled_code.h"
#include "pager/far_pager.h"
#include "platform/kernel_features.h"
#include "platform/local_memory.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"
#include "preload/allocator.h"
#include "preload/in_runtime.h"
#include "preload/memory_locks.h"
#include "preload/next_function.h"
#include "preload/runtime.h"
#include "preload/syscall_guard.h"
#include "preload/thread_ends.h"
#include "preload/tracer.h"

extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;  // what the linker names a library by

namespace {

using handler = void (*)();

// jemalloc's own handlers (preload/jemalloc.syms takes them from pthread_atfork to here), so that they run in the right
// order: jemalloc's locks are taken before the pager's, as in every call from jemalloc into the pager. A program with
// an allocator of its own may fork before jemalloc is first used, or while it is.
std::atomic<handler> jemalloc_prepare{nullptr};  // set last
handler jemalloc_parent = nullptr;
handler jemalloc_child = nullptr;
std::atomic<far::pager::pager*> forking_pager{nullptr};
constinit thread_local bool forking = false;

// Of the thread that forks, written by the holder of the fork's locks.
bool jemalloc_is_locked = false;
std::uint64_t signals_before_fork = 0;  // its mask
unsigned char dispatch_before_fork = 0;

// No handler of the program may run between the first step and the last: it would meet locks that its own thread holds,
// or be taken for the runtime.
void prepare() {
  const std::uint64_t signals = far::platform::block_signals();
  const unsigned char dispatch = far::preload::let_calls_through();
  far::preload::lock_control_for_fork();
  const handler lock_jemalloc = jemalloc_prepare.load(std::memory_order_acquire);
  if (lock_jemalloc != nullptr) lock_jemalloc();
  // Not guarded from here: a system call of ours, to wait for a lock, must not make memory resident under the others.
  const far::platform::runtime_mark allocate_locally;
  far::preload::lock_large_blocks_for_fork();
  far::pager::lock_compiled_code_for_fork();
  if (far::pager::pager* const pager = forking_pager.load()) pager->prepare_fork();
  // Last: a miss is recorded with locks of the pager held.
  far::preload::lock_trace_for_fork();
  jemalloc_is_locked = lock_jemalloc != nullptr;
  signals_before_fork = signals;
  dispatch_before_fork = dispatch;
  forking = true;
}

void after_in_parent() {
  const std::uint64_t signals = signals_before_fork;
  const unsigned char dispatch = dispatch_before_fork;
  const bool unlock_jemalloc = jemalloc_is_locked;
  forking = false;
  far::preload::unlock_trace_in_parent();
  if (far::pager::pager* const pager = forking_pager.load()) pager->after_fork_in_parent();
  far::pager::unlock_compiled_code_after_fork();
  far::preload::unlock_large_blocks_after_fork();
  if (unlock_jemalloc) jemalloc_parent();
  far::preload::unlock_control_after_fork();
  far::preload::notice_calls_again(dispatch);
  far::platform::restore_signals(signals);
}

using pinned_list = std::vector<std::span<const std::byte>, far::platform::local_allocator<std::span<const std::byte>>>;

pinned_list pinned_by_this_thread() {
  pinned_list all;
  far::preload::for_each_pinned_by_calls(
      [](void* list, std::span<const std::byte> bytes) { static_cast<pinned_list*>(list)->push_back(bytes); }, &all);
  const std::span<const std::byte> tcb = far::preload::pinned_tcb_of_this_thread();
  if (!tcb.empty()) all.push_back(tcb);
  return all;
}

// In the thread mode uses of devices are not seen, so that they cannot be refused.
void warn_of_device_writes(far::pager::far_pager& pager) {
  constexpr std::uint64_t device_writes = 0x73656369766564;  // a name for all processes of the job
  const far::platform::kernel_features& features = far::platform::probe_kernel();
  const bool has_moved = features.move && features.pagemap && pager.serves_misses();
  if (!has_moved || pager.moves_pages() || far::preload::resolves_in_line()) return;
  if (!far::preload::is_first_to_name(device_writes)) return;
  far::log_line(
      far::log_level::warning,
      "process %d (%s) is the child of one that has changed its user, so the kernel hides its page tables and it "
      "takes pages away while devices write to them: O_DIRECT, io_uring, libaio and RDMA must not write to its far "
      "memory, or their data is lost; use --fault-mode inline, where they are safe or refused; this message "
      "appears once",
      static_cast<int>(getpid()), program_invocation_short_name);
}

// The pager unpins what the other threads had pinned, because only this thread is left. Signals come last, because a
// handler of the program may miss.
void after_in_child() {
  const std::uint64_t signals = signals_before_fork;
  const unsigned char dispatch = dispatch_before_fork;
  forking = false;
  far::platform::unlock_local_memory_after_fork();  // from here on, memory is allocated
  far::platform::forget_runtime_threads();
  far::pager::unlock_compiled_code_after_fork();
  far::preload::unlock_large_blocks_after_fork();
  if (jemalloc_is_locked) jemalloc_child();
  if (far::pager::pager* const pager = forking_pager.load()) {
    const far::platform::runtime_mark allocate_locally;
    far::preload::resume_trace_in_child();
    far::preload::forget_locks_in_child();
    pager->after_fork_in_child(pinned_by_this_thread());
    far::preload::settle_in_child();
    far::preload::watch_thread_ends_in_child();
    far::preload::guard_child();
    warn_of_device_writes(static_cast<far::pager::far_pager&>(*pager));
  }
  far::preload::unlock_control_after_fork();
  far::preload::notice_calls_again(dispatch);
  far::platform::restore_signals(signals);
}

int next_register_atfork(handler before, handler in_parent, handler in_child, void* library) {
  using function = int (*)(handler, handler, handler, void*);
  return far::preload::next<"__register_atfork", function>()(before, in_parent, in_child, library);
}

// Before a fork the C library calls those handlers last that were registered first, and after it first: they must be
// ours, because others may use far memory (an allocator of the program takes its own locks there) while ours hold the
// locks of the pager.
int register_handlers() {
  static constinit std::atomic<bool> registered{false};
  if (registered.exchange(true)) return 0;
  return next_register_atfork(prepare, after_in_parent, after_in_child, &__dso_handle);
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) int far_je_pthread_atfork(handler before, handler in_parent,
                                                                           handler in_child) {
  jemalloc_parent = in_parent;
  jemalloc_child = in_child;
  jemalloc_prepare.store(before, std::memory_order_release);
  return register_handlers();
}

namespace {

// A child is made with every lock of the pager held, so this must not run on a far stack.
pid_t fork_on_local_stack(pid_t (*make)()) {
  if (!far::preload::stack_is_far()) return make();
  struct {
    pid_t (*make)();
    pid_t child;
  } request{make, -1};
  far::preload::call_on_local_stack(
      [](void* context) {
        auto& shared = *static_cast<decltype(request)*>(context);
        shared.child = shared.make();
      },
      &request);
  return request.child;
}

// The C library's _Fork() runs no handlers.
pid_t fork_without_handlers() {
  const auto next = far::preload::next<"_Fork", pid_t (*)()>();
  far::preload::begin_fork();
  const pid_t child = next();
  const int error_of_fork = errno;
  child == 0 ? far::preload::end_fork_in_child() : far::preload::end_fork_in_parent();
  errno = error_of_fork;
  return child;
}

}  // namespace

extern "C" {

// What pthread_atfork() calls. A library's constructor may be the first to, before any of ours have run.
FAR_API int __register_atfork(handler before, handler in_parent, handler in_child, void* library) noexcept {
  const int failed = register_handlers();
  return failed != 0 ? failed : next_register_atfork(before, in_parent, in_child, library);
}

FAR_API pid_t fork() {
  const auto next = far::preload::next<"fork", pid_t (*)()>();
  return fork_on_local_stack(next);
}

FAR_API pid_t _Fork() {
  return fork_on_local_stack(fork_without_handlers);
}

}  // extern "C"

namespace far::preload {

void serve_forks(pager::pager& pager) noexcept {
  FAR_CHECK(register_handlers() == 0, "the C library has room for the first handlers of fork");
  forking_pager.store(&pager);
}

void begin_fork() noexcept {
  prepare();
}
void end_fork_in_parent() noexcept {
  after_in_parent();
}
void end_fork_in_child() noexcept {
  after_in_child();
}
bool fork_is_under_way() noexcept {
  return forking;
}

}  // namespace far::preload
