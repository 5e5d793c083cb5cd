// Runs a program with system calls forbidden, as a container does: each fails with EPERM.
//
//   forbidder NAME[,NAME...] PROGRAM ARGUMENTS...      names: userfaultfd, io_uring
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

constexpr int no_such_call = -1;

int number_of(const char* name) {
  if (std::strcmp(name, "userfaultfd") == 0) return SYS_userfaultfd;
  if (std::strcmp(name, "io_uring") == 0) return SYS_io_uring_setup;
  return no_such_call;
}

bool forbid(int number) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = sizeof program / sizeof program[0], .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  for (char* name = std::strtok(arguments[1], ","); name != nullptr; name = std::strtok(nullptr, ",")) {
    const int number = number_of(name);
    if (number == no_such_call || !forbid(number)) {
      std::fprintf(stderr, "forbidder: cannot forbid %s: %s\n", name, std::strerror(errno));
      return 2;
    }
  }
  execvp(arguments[2], arguments + 2);
  std::perror(arguments[2]);
  return 127;
}
