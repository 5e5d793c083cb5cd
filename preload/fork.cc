#include "preload/fork.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "base/log.h"
#include "pager/runtime_thread.h"
#include "preload/in_runtime.h"
#include "preload/tracer.h"

// jemalloc's own handlers (preload/jemalloc.syms takes them from pthread_atfork to here), so that they run in the right
// order: jemalloc's locks are taken before the pager's, as in every call from jemalloc into the pager.
namespace {

using handler = void (*)();
handler jemalloc_prepare = nullptr;
handler jemalloc_parent = nullptr;
handler jemalloc_child = nullptr;
std::atomic<far::pager::pager*> forking_pager{nullptr};

void prepare() {
  if (jemalloc_prepare != nullptr) jemalloc_prepare();
  // Not guarded from here: a system call of ours, to wait for a lock, must not make memory resident under the others.
  const far::pager::runtime_section allocate_locally;
  if (far::pager::pager* const pager = forking_pager.load()) pager->prepare_fork();
  far::preload::lock_trace_for_fork();
}

void after_in_parent() {
  far::preload::unlock_trace_in_parent();
  if (far::pager::pager* const pager = forking_pager.load()) pager->after_fork_in_parent();
  if (jemalloc_parent != nullptr) jemalloc_parent();
}

void after_in_child() {
  if (jemalloc_child != nullptr) jemalloc_child();
  if (far::pager::pager* const pager = forking_pager.load()) {
    const far::pager::runtime_section allocate_locally;
    far::preload::resume_trace_in_child();
    pager->after_fork_in_child();
  }
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) int far_je_pthread_atfork(handler before, handler in_parent,
                                                                           handler in_child) {
  jemalloc_prepare = before;
  jemalloc_parent = in_parent;
  jemalloc_child = in_child;
  return pthread_atfork(prepare, after_in_parent, after_in_child);
}

// The C library's fork() runs between the handlers, with every lock of the pager held: not on a far stack.
extern "C" __attribute__((visibility("default"))) pid_t fork() {
  using function = pid_t (*)();
  static const auto next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "fork"));
  if (!far::preload::stack_is_far()) return next();
  pid_t child = -1;
  far::preload::call_on_local_stack([](void* result) { *static_cast<pid_t*>(result) = next(); }, &child);
  return child;
}

namespace far::preload {

void serve_forks(pager::pager& pager) noexcept {
  forking_pager.store(&pager);
}

void release_slots_of_ended_children() noexcept {
  if (pager::pager* const pager = forking_pager.load()) pager->release_slots_of_ended_children();
}

}  // namespace far::preload
