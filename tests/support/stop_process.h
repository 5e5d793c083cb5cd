// Stops a process of the test, as a machine that hangs does.
#pragma once

#include <errno.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

namespace far::testing_support {

// Sends SIGSTOP to a child of this process, and returns when all its threads have stopped: until then it may still
// answer.
inline void stop_process(pid_t process) {
  ::kill(process, SIGSTOP);
  siginfo_t stopped{};
  while (::waitid(P_PID, static_cast<id_t>(process), &stopped, WSTOPPED | WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
}

}  // namespace far::testing_support
