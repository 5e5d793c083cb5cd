#include "base/quiet_write.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>

namespace far {
namespace {

// Runs `body` in a child, because the signals would end it, and returns how the child ended, in the form of wait(2).
int end_of(int (*body)()) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

int pipe_without_reader() {
  int ends[2];
  if (pipe(ends) != 0) _exit(9);
  close(ends[0]);
  return ends[1];
}

TEST(quiet_write, a_pipe_without_a_reader_is_an_error_alone) {
  EXPECT_EQ(end_of([] {
              const int file = pipe_without_reader();
              if (write_quietly(file, "x", 1) != -1 || errno != EPIPE) return 1;
              return write_quietly(file, "x", 1) == -1 && errno == EPIPE ? 0 : 2;
            }),
            0);
}

TEST(quiet_write, so_is_a_file_at_its_limit) {
  EXPECT_EQ(end_of([] {
              char name[] = "/tmp/farheap-quiet-XXXXXX";
              const int file = mkstemp(name);
              unlink(name);
              const rlimit limit{2, RLIM_INFINITY};
              if (file < 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              if (write_quietly(file, "xyz", 3) != 2) return 2;
              return write_quietly(file, "z", 1) == -1 && errno == EFBIG ? 0 : 3;
            }),
            0);
}

TEST(quiet_write, so_is_a_reader_that_leaves_after_a_part) {
  EXPECT_EQ(end_of([] {
              int ends[2];
              if (pipe(ends) != 0) return 1;
              const pid_t reader = fork();
              if (reader == 0) {
                close(ends[1]);
                int waiting = 0;
                while (waiting < 65536) {
                  if (ioctl(ends[0], FIONREAD, &waiting) != 0) _exit(1);
                  usleep(1'000);
                }
                _exit(0);
              }
              close(ends[0]);
              static char much[1 << 20];
              return write_quietly(ends[1], much, sizeof much) == 65536 ? 0 : 2;
            }),
            0);
}

TEST(quiet_write, signals_of_the_program_remain) {
  EXPECT_EQ(end_of([] {
              const int file = pipe_without_reader();
              sigset_t broken;
              sigemptyset(&broken);
              sigaddset(&broken, SIGPIPE);
              sigprocmask(SIG_BLOCK, &broken, nullptr);
              raise(SIGPIPE);
              if (write_quietly(file, "x", 1) != -1) return 1;
              sigset_t pending;
              sigpending(&pending);
              return sigismember(&pending, SIGPIPE) == 1 ? 0 : 2;
            }),
            0);
  EXPECT_TRUE(WIFSIGNALED(end_of([] { return static_cast<int>(write(pipe_without_reader(), "x", 1)); })));
}

// Refuses rt_sigprocmask with this first argument from now on.
bool refuse_masks(int how) {
  constexpr auto at = [](std::size_t offset) { return static_cast<std::uint32_t>(offset); };
  sock_filter rows[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at(offsetof(seccomp_data, nr))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at(offsetof(seccomp_data, args))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(how), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(rows)), rows};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Of a thread that has blocked one signal. The calls that filters of the program's refuse change nothing.
template <int refused, int asked>
int mask_after_writing() {
  const int file = pipe_without_reader();
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  signal(SIGPIPE, refused == SIG_BLOCK ? SIG_DFL : SIG_IGN);
  if (sigprocmask(SIG_BLOCK, &one, nullptr) != 0 || !refuse_masks(refused)) return 1;
  if (write_quietly(file, "x", 1) != -1 || errno != EPIPE) return 2;
  sigset_t after;
  if (sigprocmask(asked, nullptr, &after) != 0) return 3;
  for (int number = 1; number < SIGRTMIN; ++number) {
    if (sigismember(&after, number) != (number == SIGUSR1 ? 1 : 0)) return 4;
  }
  return 0;
}

TEST(quiet_write, the_mask_is_the_programs_where_it_restricts_its_calls) {
  EXPECT_EQ(end_of(mask_after_writing<SIG_BLOCK, SIG_SETMASK>), 0);
  EXPECT_EQ(end_of(mask_after_writing<SIG_SETMASK, SIG_BLOCK>), 0);
}

TEST(quiet_write, what_can_be_written_is) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write_quietly(ends[1], "word", 4), 4);
  char word[8] = {};
  EXPECT_EQ(read(ends[0], word, sizeof word), 4);
  EXPECT_STREQ(word, "word");
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace far
