#include "server/devices/guardian.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>

namespace far::server {
namespace {

// A process that is still there after SIGKILL waits in the kernel, and ends when that lets it go.
constexpr auto most_time = std::chrono::seconds(10);
constexpr timespec round_time{0, 10'000'000};

sigset_t awaited_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGCHLD);
  return set;
}

struct reaped {
  bool device = false;         // it was among those that have ended
  bool is_any_living = false;  // there are other children
};
reaped reap(pid_t device) {
  reaped found;
  for (;;) {
    const pid_t one = waitpid(-1, nullptr, WNOHANG);
    if (one < 0 && errno == EINTR) continue;
    found.device |= one == device;
    found.is_any_living = one == 0;
    if (one <= 0) return found;
  }
}

// The children of a child become ours when it has ended, and have their turn in the next round.
void end_all(pid_t device) {
  const sigset_t awaited = awaited_signals();
  const auto deadline = std::chrono::steady_clock::now() + most_time;
  while (reap(device).is_any_living && std::chrono::steady_clock::now() < deadline) {
    std::ifstream children("/proc/thread-self/children");
    if (!children) {
      std::fputs("farheapd: what devices start may outlive them, because there is no /proc/thread-self/children\n",
                 stderr);
      return;
    }
    for (pid_t one = 0; children >> one;) kill(one, SIGKILL);
    sigtimedwait(&awaited, nullptr, &round_time);
  }
}

// Holds nothing of the device's: the server sees the end of its socket.
[[noreturn]] void guard(pid_t device) {
  close(STDIN_FILENO);
  closefrom(STDERR_FILENO + 1);
  const sigset_t awaited = awaited_signals();
  bool has_ended = false;
  while (!has_ended && sigwaitinfo(&awaited, nullptr) != SIGTERM) has_ended = reap(device).device;
  if (!has_ended) kill(device, SIGKILL);
  end_all(device);
  _exit(0);
}

}  // namespace

bool become_guarded(const std::string& server) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  // It ends when the server does, even if that is killed.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (std::to_string(getppid()) != server) return false;
  const pid_t guardian = getpid();
  const pid_t device = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 ? fork() : -1;
  if (device > 0) guard(device);
  if (device < 0) {
    std::fprintf(stderr, "farheapd: the system gives no process for a device: %s\n", std::strerror(errno));
    return false;
  }
  // It must not outlive its guardian, even if it never looks at its socket again.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return getppid() == guardian;
}

}  // namespace far::server
