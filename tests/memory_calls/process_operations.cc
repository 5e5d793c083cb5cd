// Children: by fork, by clone without CLONE_VM behind the C library's back, by vfork. They verify what they inherit,
// change it, free it, and fork again.
#include <sched.h>
#include <sys/wait.h>
#include <time.h>

#include <csignal>
#include <cstring>

#include "world.h"

namespace memory_calls {
namespace {

constexpr int deepest = 3;
constexpr int patience_s = 240;  // of the first process; less of those that it waits for
constexpr int exit_code = 37;

double now_s() {
  timespec time = {};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Whether the child has ended; it must have ended well.
bool reap(world& w, pid_t child, bool wait) {
  const double limit = now_s() + patience_s - 60 * w.depth;
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended < 0 && errno != EINTR) fail(w, "waitpid of %d ends with errno %d", static_cast<int>(child), errno);
    if (ended == child) {
      if (WIFEXITED(status) && WEXITSTATUS(status) == exit_code) return true;
      fail(w, "the child %d ended with wait status %#x", static_cast<int>(child), static_cast<unsigned>(status));
    }
    if (!wait) return false;
    if (now_s() > limit) {
      ::kill(child, SIGKILL);
      fail(w, "the child %d hangs", static_cast<int>(child));
    }
    const timespec pause = {0, 500'000};
    ::nanosleep(&pause, nullptr);
  }
}

// A page that the kernel does not give to children is a hole there.
void leave_out_unforked(world& w) {
  for (area& area : w.areas) {
    for (std::size_t page = 0; page < area.pages; ++page) {
      page_record& record = area.records[page];
      if (!record.dont_fork || record.state != page_state::owned) continue;
      record = {};
      record.state = page_state::gone;
    }
    if (area.pages != 0) forget_if_unused(area);
  }
}

[[noreturn]] void be_child(world& w, std::uint64_t seed, bool beside) {
  ++w.depth;
  w.frozen = w.frozen || beside;
  w.own = {};
  std::memset(w.children, 0, sizeof w.children);
  leave_out_unforked(w);
  random_numbers random(seed);
  if (!random.one_in(4)) verify_all(w);
  const std::uint64_t count = random.below(30);
  run_operations(w, random.next(), count);
  if (random.one_in(2)) verify_all(w);
  if (random.one_in(3)) release_everything(w);
  if (random.one_in(3)) kernel_call(SYS_exit_group, exit_code);
  ::_exit(exit_code);
}

pid_t start_child(world& w, const char*& way) {
  // Behind the C library's back its locks stay as other threads held them: only for processes without any.
  const std::uint64_t choice = w.holes_are_safe ? w.random.below(4) : 3;
  if (choice == 0 && allowed(w, "raw-fork")) {
    way = "clone";
    const outcome cloned = kernel_call(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    return cloned.ok() ? static_cast<pid_t>(cloned.value) : -1;
  }
  if (choice == 1 && allowed(w, "plain-fork")) {
    way = "_Fork";
    return ::_Fork();
  }
  way = "fork";
  return ::fork();
}

}  // namespace

void fork_child(world& w) {
  if (w.depth >= deepest) return;
  int slot = 0;
  while (slot < child_count && w.children[slot] != 0) ++slot;
  const bool beside = slot < child_count && w.depth < 2 && w.random.one_in(3);
  const std::uint64_t seed = w.random.next();
  const char* way = "";
  // Seen by nobody but the child: C's streams must not be written twice.
  const pid_t child = start_child(w, way);
  if (child < 0) fail(w, "%s ends with errno %d", way, errno);
  if (child == 0) be_child(w, seed, beside);
  say(w, "%s: the child %d%s", way, static_cast<int>(child), beside ? ", beside" : "");
  if (beside) {
    w.children[slot] = child;
    w.frozen = true;
    return;
  }
  static_cast<void>(reap(w, child, true));
}

void wait_for_children(world& w) {
  for (pid_t& child : w.children) {
    if (child == 0) continue;
    static_cast<void>(reap(w, child, true));
    child = 0;
  }
  // The memory of a process that another one looks at meanwhile stays frozen.
  if (w.depth == 0) w.frozen = false;
}

void vfork_child(world& w) {
  range pages;
  if (!pick_writable_range(w, pages)) return;
  say(w, "a look at %p", static_cast<void*>(pages.main()));
  std::byte* volatile const main = pages.main();
  std::byte* volatile const twin = pages.twin();
  const pid_t child = ::vfork();
  if (child < 0) fail(w, "vfork ends with errno %d", errno);
  if (child == 0) {
    // It shares the memory, so a write is seen by the parent.
    const bool same = *main == *twin;
    *main = std::byte{0x5a};
    *twin = std::byte{0x5a};
    ::_exit(same ? exit_code : 1);
  }
  static_cast<void>(reap(w, child, true));
  verify_range(w, pages);
}

}  // namespace memory_calls
