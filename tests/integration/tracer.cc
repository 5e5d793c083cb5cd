// Starts a program under its eyes, as a debugger does, and tells at which signals it stopped.
//
//   tracer PROGRAM ARGUMENTS...
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

int main(int count, char** arguments) {
  if (count < 2) return 2;
  const pid_t child = vfork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    execv(arguments[1], arguments + 1);
    _exit(127);
  }
  int status = 0;
  int stops = 0;
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    const int signal = WSTOPSIG(status);
    std::printf("stops at %s\n", strsignal(signal));
    // The first one is that of exec, which is not a signal.
    ptrace(PTRACE_CONT, child, nullptr, stops++ == 0 ? 0 : signal);
  }
  std::printf("exit code %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}
