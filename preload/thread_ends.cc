#include "preload/thread_ends.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "base/spin_lock.h"
#include "base/units.h"
#include "far/detail/api.h"
#include "platform/kept_files.h"
#include "platform/local_memory.h"
#include "platform/program_limits.h"
#include "platform/runtime_thread.h"
#include "preload/held_pages.h"
#include "preload/in_runtime.h"
#include "preload/next_function.h"
#include "preload/runtime.h"
#include "preload/small_file.h"
#include "preload/syscall_guard.h"

namespace far::preload {
namespace {

// Its destructor is called when a thread ends. It waits for the last round, after the program's destructors.
pthread_key_t at_end;
bool watching = false;
constinit thread_local bool watched = false;
constinit thread_local bool ended = false;
constinit thread_local std::span<const std::byte> own_tcb;  // the part of a far stack that is pinned
std::atomic<int> alive{0};                                  // threads that are watched

spin_lock held_lock;
held_pages& held() FAR_REQUIRES(held_lock) {
  // Built in place and never destroyed: threads end until the very end of the process.
  alignas(held_pages) static std::byte storage[sizeof(held_pages)];
  static held_pages* const pages = new (storage) held_pages;
  return *pages;
}

class pages_of_process final : public held_pages::world {
 public:
  explicit pages_of_process(pager::pager& far) : far_(far) {}
  void pin(const std::byte* page) override { far_.pin(page, 1); }
  void unpin(const std::byte* page) override { far_.unpin(page, 1); }
  [[nodiscard]] bool has_ended(pid_t thread) const override {
    return syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH;
  }

 private:
  pager::pager& far_;
};

pid_t this_thread_id() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

// Whether the kernel could write there: not behind a stack, where nothing may be mapped.
bool is_accessible(const pager::pager& far, const std::byte* page) {
  if (!far.contains(page)) return false;
  const result<pager::pager::mapping> found = far.mapping_at(page, page_bytes);
  return found.ok() && !found.value().guarded && found.value().protection != PROT_NONE;
}

// Makes the pages of a range resident until the calling thread is gone.
void hold(const void* address, std::size_t bytes) {
  pager::pager* const far = active_pager();
  pages_of_process outside(*far);
  const auto first = round_down(reinterpret_cast<std::uintptr_t>(address), page_bytes);
  const auto last = reinterpret_cast<std::uintptr_t>(address) + bytes - 1;
  for (std::uintptr_t at = first; at <= last; at += page_bytes) {
    const auto* const page = reinterpret_cast<const std::byte*>(at);
    if (!is_accessible(*far, page)) continue;
    const lock_guard guard(held_lock);
    held().hold(page, this_thread_id(), outside);
  }
}

struct touched {
  const void* address;
  std::size_t bytes;
};

// The most robust mutexes of an ending thread that are made resident. If it holds more, the last may not be marked.
constexpr std::size_t most_mutexes = 256;

class touched_list {
 public:
  void push_back(touched one) {
    if (count_ < all_.size()) all_[count_++] = one;
  }
  [[nodiscard]] std::span<const touched> all() const { return {all_.data(), count_}; }

 private:
  std::size_t count_ = 0;
  std::array<touched, most_mutexes + 3> all_;
};

// The memory that the kernel reads and writes when the thread ends: its robust mutexes, to mark them, and the head of
// their list and the thread's number, which lie in the C library's thread control block (TCB). A list that the program
// has given to the kernel itself is left alone: the kernel bears any nonsense in it, and we would not.
touched_list touched_at_end() {
  touched_list found;
  constexpr std::size_t tcb_bytes = page_bytes;  // more than the TCB has
  const auto tcb = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  found.push_back({reinterpret_cast<const void*>(tcb), tcb_bytes});
  robust_list_head* head = nullptr;
  std::size_t length = 0;
  if (syscall(SYS_get_robust_list, 0, &head, &length) != 0) return found;
  if (reinterpret_cast<std::uintptr_t>(head) - tcb >= tcb_bytes) return found;
  const auto note = [&](std::uintptr_t entry) {
    const auto word = entry + static_cast<std::uintptr_t>(head->futex_offset);
    const std::uintptr_t first = std::min(entry, word);
    found.push_back({reinterpret_cast<const void*>(first), std::max(entry, word) + sizeof(void*) - first});
  };
  // The lowest bit of an entry's address says of what kind the mutex is.
  const auto end = reinterpret_cast<std::uintptr_t>(&head->list);
  std::uintptr_t entry = reinterpret_cast<std::uintptr_t>(head->list.next) & ~std::uintptr_t{1};
  for (std::size_t i = 0; i < most_mutexes && entry != end && entry != 0; ++i) {
    note(entry);
    entry = reinterpret_cast<std::uintptr_t>(reinterpret_cast<const robust_list*>(entry)->next) & ~std::uintptr_t{1};
  }
  const auto pending = reinterpret_cast<std::uintptr_t>(head->list_op_pending) & ~std::uintptr_t{1};
  if (pending != 0) note(pending);
  return found;
}

// The state in the text of a `stat` file, behind "NUMBER (NAME) ", whose name may hold anything; 0 if there is none.
char state_in(const char* text) {
  const char* const name_end = std::strrchr(text, ')');
  return name_end != nullptr && name_end[1] == ' ' ? name_end[2] : 0;
}

// Whether a thread of the process is one of the program's, and lives. A main thread that has ended stays as a zombie.
bool lives_for_program(int number) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", number);
  char text[512];
  if (!read_text(path, text)) return false;
  const char state = state_in(text);
  const char* const name = std::strchr(text, '(');
  return state != 0 && state != 'Z' && state != 'X' && std::strncmp(name, "(farheap-", 9) != 0;
}

// Whether other threads of the program live, even those that no function started. Also true if that cannot be found
// out.
bool others_live() {
  const int tasks = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (tasks < 0) return true;
  const pid_t own = this_thread_id();
  bool found = false;
  alignas(dirent64) char entries[2048];
  ssize_t bytes = 0;
  while ((bytes = getdents64(tasks, entries, sizeof entries)) > 0) {
    for (ssize_t at = 0; at < bytes;) {
      const auto* const task = reinterpret_cast<const dirent64*>(entries + at);
      const int number = std::atoi(task->d_name);
      found |= number > 0 && number != own && lives_for_program(number);
      at += task->d_reclen;
    }
  }
  close(tasks);
  return found || bytes < 0;
}

// Whether the main thread is a zombie; then also how it ended, in the form of wait(2).
bool main_thread_has_ended(int* exit_code) {
  char text[1024];
  if (!platform::read_kept_text("/proc/self/stat", text) || state_in(text) != 'Z') return false;
  const char* const last = std::strrchr(text, ' ');  // exit_code is the last field
  *exit_code = std::atoi(last + 1);
  return true;
}

// Threads that are not watched, such as the C library's own, keep the process alive. Threads that have just ended do
// not, and are gone in a moment.
bool is_last() {
  if (alive.fetch_sub(1) != 1) return false;
  constexpr int attempts = 100;
  for (int i = 0; i < attempts; ++i) {
    if (!in_runtime([] { return others_live(); })) return true;
    usleep(10000);
  }
  return false;
}

void end_thread(void* round) {
  // Once more, until the program's own destructors, which may release what is held, have all been called.
  const auto number = reinterpret_cast<std::uintptr_t>(round);
  if (number < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(at_end, reinterpret_cast<void*>(number + 1));
    return;
  }
  if (std::exchange(ended, true)) return;
  // The C library does this for its last thread, but cannot tell our threads from the program's.
  if (is_last()) std::exit(EXIT_SUCCESS);
  if (active_pager() == nullptr) return;
  const touched_list touched = touched_at_end();
  in_runtime([&] {
    for (const struct touched& range : touched.all()) hold(range.address, range.bytes);
  });
}

void watch_this_thread() {
  watched = true;
  pthread_setspecific(at_end, reinterpret_cast<void*>(std::uintptr_t{1}));
}

struct thread_start {
  void* (*body)(void*);
  int (*standard_body)(void*);  // of thrd_create, instead
  void* argument;
  std::byte* tcb = nullptr;  // of its far stack, which is pinned until it holds it itself
  std::size_t tcb_bytes = 0;
};

thread_start take_start(void* context) {
  const thread_start start = *static_cast<thread_start*>(context);
  in_runtime([&] { platform::free_local(context, sizeof start); });
  watch_this_thread();
  guard_started_thread();
  if (start.tcb_bytes > 0) {
    in_runtime([&] {
      hold(start.tcb, start.tcb_bytes);
      active_pager()->unpin(start.tcb, start.tcb_bytes);
    });
    own_tcb = {start.tcb, start.tcb_bytes};
  }
  return start;
}

void* run_thread(void* context) {
  const thread_start start = take_start(context);
  return start.body(start.argument);
}

int run_standard_thread(void* context) {
  const thread_start start = take_start(context);
  return start.standard_body(start.argument);
}

// The C library's thread control block (TCB) and its static thread-local variables lie at the upper end of its stack.
// On a far stack they must be resident whenever the thread runs: the kernel writes there (rseq, the thread's number),
// and so do our signal handlers.
void pin_tcb(const pthread_attr_t* attributes, thread_start& start) {
  void* stack = nullptr;
  std::size_t bytes = 0;
  if (attributes == nullptr || pthread_attr_getstack(attributes, &stack, &bytes) != 0 || stack == nullptr) return;
  pager::pager* const far = active_pager();
  auto* const end = static_cast<std::byte*>(stack) + bytes;
  if (far == nullptr || bytes == 0 || !far->contains(end - 1)) return;
  using function = void (*)(std::size_t*, std::size_t*);
  static const auto ask_loader = reinterpret_cast<function>(dlsym(RTLD_DEFAULT, "_dl_get_tls_static_info"));
  std::size_t variables_bytes = 64 * kib;
  std::size_t alignment = 0;
  if (ask_loader != nullptr) ask_loader(&variables_bytes, &alignment);
  start.tcb_bytes = std::min(bytes, round_up(variables_bytes, page_bytes) + 2 * page_bytes);
  start.tcb = end - start.tcb_bytes;
  in_runtime([&] { far->pin(start.tcb, start.tcb_bytes); });
}

// Starts a thread by `create`, which gets the argument for run_thread or run_standard_thread.
template <typename Create>
int start_thread(const thread_start& start, int success, Create create) {
  void* const context = in_runtime([&] { return platform::allocate_local(sizeof start); });
  std::memcpy(context, &start, sizeof start);
  alive.fetch_add(1);
  int result = create(context);
  if (result != success && in_runtime(platform::adopt_limits_from_outside)) result = create(context);
  if (result != success) {
    alive.fetch_sub(1);
    in_runtime([&] {
      platform::free_local(context, sizeof start);
      if (start.tcb_bytes > 0) active_pager()->unpin(start.tcb, start.tcb_bytes);
    });
  }
  return result;
}

bool is_watched() {
  return watching && !platform::on_runtime_thread();
}

}  // namespace

void watch_thread_ends() noexcept {
  if (pthread_key_create(&at_end, end_thread) != 0) return;
  watch_this_thread();
  alive.store(1);
  watching = true;
  int exit_code = 0;
  static_cast<void>(main_thread_has_ended(&exit_code));  // so that the file is open before the program begins
}

void watch_thread_ends_in_child() noexcept {
  if (!watching) return;
  alive.store(1);
  held_lock.open_in_child();
  const lock_guard guard(held_lock);
  // Another thread may have been changing the list.
  new (&held()) held_pages;
  for (std::size_t at = 0; at < own_tcb.size(); at += page_bytes) {
    held().note(own_tcb.data() + at, this_thread_id());
  }
  watch_this_thread();
}

std::span<const std::byte> pinned_tcb_of_this_thread() noexcept {
  return own_tcb;
}

void end_thread_without_c_library(int status) noexcept {
  if (!watched || std::exchange(ended, true)) return;
  // The end may take more room than the thread has: the child of clone() is on a stack of the program's choice.
  auto end_if_last = [status] {
    if (is_last()) _exit(status);
  };
  call_on_local_stack(end_if_last);
}

void end_with_last_thread() noexcept {
  int exit_code = 0;
  static bool seen_before = false;  // a thread may be starting another one just now
  const bool has_ended = main_thread_has_ended(&exit_code) && !others_live();
  if (!std::exchange(seen_before, has_ended) || !has_ended) return;
  constexpr int signal_bits = 0x7f;
  if ((exit_code & signal_bits) != 0) kill(getpid(), exit_code & signal_bits);
  std::exit(exit_code >> 8);
}

// Each thread is a directory there, which counts as a link. Those of the runtime may have no name yet. The kernel
// counts one that starts later than we do, and one that ends for longer: then it is asked again.
bool is_only_thread() noexcept {
  constexpr nlink_t links_with_one_thread = 3;
  constexpr int most_attempts = 20;
  constexpr timespec pause{0, 1'000'000};
  for (int i = 0; i < most_attempts && alive.load() <= 1; ++i) {
    const unsigned ours = platform::runtime_threads();
    struct stat threads{};
    if (syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &threads, 0) != 0) return false;
    if (threads.st_nlink == links_with_one_thread + ours && platform::runtime_threads() == ours) return true;
    syscall(SYS_nanosleep, &pause, nullptr);
  }
  return false;
}

bool waits_for_vfork(pid_t thread) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", static_cast<int>(thread));
  char text[512];
  return read_text(path, text) && state_in(text) == 'D';
}

void release_pages_of_ended_threads() noexcept {
  pager::pager* const far = active_pager();
  if (far == nullptr) return;
  pages_of_process outside(*far);
  const lock_guard guard(held_lock);
  held().release_ended(outside);
}

}  // namespace far::preload

extern "C" {

FAR_API int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  const auto next =
      far::preload::next<"pthread_create", int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>();
  if (!far::preload::is_watched()) return next(thread, attributes, body, argument);
  far::preload::thread_start start{body, nullptr, argument};
  far::preload::pin_tcb(attributes, start);
  return far::preload::start_thread(
      start, 0, [&](void* context) { return next(thread, attributes, far::preload::run_thread, context); });
}

FAR_API int thrd_create(thrd_t* thread, thrd_start_t body, void* argument) {
  const auto next = far::preload::next<"thrd_create", int (*)(thrd_t*, thrd_start_t, void*)>();
  if (!far::preload::is_watched()) return next(thread, body, argument);
  return far::preload::start_thread({nullptr, body, argument}, thrd_success, [&](void* context) {
    return next(thread, far::preload::run_standard_thread, context);
  });
}

}  // extern "C"
