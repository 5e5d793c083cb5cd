// Fills memory, forbids itself all system calls but a few by a filter of its own (no library helps it), and reads the
// memory again.
//
//   sandboxed MIB [stop]
//
// With `stop` the kernel stops the process at any other call.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace {

bool forbid_other_calls(unsigned answer) {
  const sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = sizeof filter / sizeof filter[0], .filter = const_cast<sock_filter*>(filter)};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  std::vector<std::size_t> numbers(std::strtoul(arguments[1], nullptr, 10) << 17);
  std::iota(numbers.begin(), numbers.end(), 1);
  std::setvbuf(stdout, nullptr, _IONBF, 0);  // no call but write(2) later on
  if (!forbid_other_calls(count == 2 ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS)) {
    std::perror("prctl(PR_SET_SECCOMP)");
    return 77;
  }
  std::printf("%zu\n", std::accumulate(numbers.begin(), numbers.end(), std::size_t{0}));
  _exit(0);
}
