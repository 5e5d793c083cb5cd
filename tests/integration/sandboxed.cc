// Fills memory, forbids itself all system calls but a few by a filter of its own (no library helps it), and reads the
// memory again.
//
//   sandboxed MIB [stop|fork]
//
// With `stop` the kernel stops the process at any other call. With `fork` it forbids itself only calls that open
// descriptors of a special kind, among them what the runtime wants in a child, and children read the memory.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>
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

// As a filter that lets through what an ordinary program calls.
bool forbid_special_descriptors() {
  constexpr unsigned new_userfaultfd = 0xaa00;  // the request of ioctl(2) to /dev/userfaultfd
  const sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_eventfd2, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, new_userfaultfd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = sizeof filter / sizeof filter[0], .filter = const_cast<sock_filter*>(filter)};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

std::size_t sum_of(const std::vector<std::size_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::size_t{0});
}

// Whether a block that is to take the place of another is there, or both are as before and the errno says so.
bool moves_or_stays() {
  constexpr std::size_t bytes = std::size_t{1} << 20;
  const auto block = [](int value) {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? nullptr : static_cast<char*>(std::memset(at, value, bytes));
  };
  char* const source = block(1);
  char* const target = block(2);
  if (source == nullptr || target == nullptr) return false;
  if (mremap(source, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target) return target[bytes - 1] == 1;
  return errno == ENOMEM && source[bytes - 1] == 1 && target[bytes - 1] == 2;
}

// Each generation reads what it has inherited, writes to it, and takes as much again, twice.
int continue_in_children(std::vector<std::size_t> numbers, int generations) {
  std::printf("%zu\n", sum_of(numbers));
  for (std::size_t& number : numbers) ++number;
  const std::vector<std::size_t> more(numbers.size() * 2, 5);
  std::printf("%zu %zu, %s\n", sum_of(numbers), sum_of(more), moves_or_stays() ? "moved" : "lost by mremap()");
  if (generations == 0) return 0;
  const pid_t child = fork();
  if (child == 0) _exit(continue_in_children(std::move(numbers), generations - 1));
  int status = -1;
  waitpid(child, &status, 0);
  std::printf("child: %d, still %zu\n", status, sum_of(numbers));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  std::vector<std::size_t> numbers(std::strtoul(arguments[1], nullptr, 10) << 17);
  std::iota(numbers.begin(), numbers.end(), 1);
  std::setvbuf(stdout, nullptr, _IONBF, 0);  // no call but write(2) later on
  if (count == 3 && std::string_view(arguments[2]) == "fork") {
    const pid_t child = forbid_special_descriptors() ? fork() : -1;
    if (child == -1) return 77;
    if (child == 0) _exit(continue_in_children(std::move(numbers), 2));
    int status = -1;
    waitpid(child, &status, 0);
    std::printf("child: %d, still %zu\n", status, sum_of(numbers));
    return 0;
  }
  if (!forbid_other_calls(count == 2 ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS)) {
    std::perror("prctl(PR_SET_SECCOMP)");
    return 77;
  }
  std::printf("%zu\n", sum_of(numbers));
  _exit(0);
}
