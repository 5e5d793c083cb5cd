#include "platform/thread_identity.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/sanitizers.h"
#include "platform/signal_shield.h"

namespace far::platform {
namespace {

// Each thread has its own, and any user may change it.
long timer_slack_ns() {
  return prctl(PR_GET_TIMERSLACK);
}

TEST(ThreadIdentity, ThoseThatFollowMakeTheCallToo) {
  std::atomic<bool> ready{false};
  std::atomic<bool> done{false};
  long slack_of_follower = 0;
  long slack_of_other = 0;
  std::thread other([&] {
    while (!done.load()) std::this_thread::yield();
    slack_of_other = timer_slack_ns();
  });
  std::atomic<pid_t> follower_id{0};
  const std::uint64_t inherited = expect_follower();
  std::thread follower([&] {
    static_cast<void>(block_signals());
    let_identity_change();
    follow_identity(inherited);
    follower_id.store(static_cast<pid_t>(syscall(SYS_gettid)));
    ready.store(true);
    while (!done.load()) std::this_thread::yield();
    slack_of_follower = timer_slack_ns();
    unfollow_identity();
  });
  while (!ready.load()) std::this_thread::yield();
  EXPECT_TRUE(follows_identity(follower_id.load()));
  EXPECT_FALSE(follows_identity(static_cast<pid_t>(syscall(SYS_gettid))));
  for (const long slack_ns : {70'001L, 70'002L}) {
    EXPECT_TRUE(mirror_on_runtime_threads(SYS_prctl, PR_SET_TIMERSLACK, slack_ns, 0, 0, 0));
  }
  done.store(true);
  follower.join();
  other.join();
  EXPECT_EQ(slack_of_follower, 70'002);
  EXPECT_NE(slack_of_other, 70'002);
  EXPECT_NE(timer_slack_ns(), 70'002);
  EXPECT_FALSE(follows_identity(follower_id.load()));
  // Nobody follows any more, and nobody is waited for.
  EXPECT_TRUE(mirror_on_runtime_threads(SYS_prctl, PR_SET_TIMERSLACK, 70'003, 0, 0, 0));
}

// The C library's own use of the signal goes on as ever.
TEST(ThreadIdentity, TheCLibraryReachesEveryThreadAllTheSame) {
  if (has_thread_sanitizer) {
    GTEST_SKIP()
        << "the C library also sends the signal to ThreadSanitizer's own thread, which can run no checked code";
  }
  std::atomic<bool> done{false};
  const std::uint64_t inherited = expect_follower();
  std::thread follower([&] {
    static_cast<void>(block_signals());
    let_identity_change();
    follow_identity(inherited);
    while (!done.load()) std::this_thread::yield();
    unfollow_identity();
  });
  EXPECT_TRUE(mirror_on_runtime_threads(SYS_getppid, 0, 0, 0, 0, 0));
  EXPECT_EQ(setresuid(static_cast<uid_t>(-1), static_cast<uid_t>(-1), static_cast<uid_t>(-1)), 0);
  done.store(true);
  follower.join();
}

// A child that waits for what never comes is killed.
void expect_success(pid_t child) {
  int status = -1;
  pid_t ended = 0;
  for (int tenths = 0; tenths < 1200 && ended == 0; ++tenths) {
    ended = waitpid(child, &status, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(ended, child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  if (ended != 0) return;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
}

// Neither the threads that the parent expects nor one that mirrors a call there is in the child: nobody is waited for.
// No thread is started there, which ThreadSanitizer forbids.
TEST(ThreadIdentity, InTheChildOfAForkNobodyOfTheParentIsWaitedFor) {
  static_cast<void>(expect_follower());
  std::atomic<bool> begins{false};
  bool mirrored = false;
  std::thread mirroring([&] {
    begins.store(true);
    mirrored = mirror_on_runtime_threads(SYS_getppid, 0, 0, 0, 0, 0);  // waits for the follower
  });
  while (!begins.load()) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it holds the lock by now, most probably
  const pid_t child = fork();
  if (child == 0) {
    forget_expected_followers();
    // From now on it is a process with followers of its own, of which none could be started.
    static_cast<void>(expect_follower());
    expect_no_follower();
    _exit(mirror_on_runtime_threads(SYS_getppid, 0, 0, 0, 0, 0) ? 0 : 1);
  }
  expect_no_follower();
  mirroring.join();
  EXPECT_TRUE(mirrored);
  expect_success(child);
}

// It shares its parent's memory, where threads are expected that it will never see, but has none.
TEST(ThreadIdentity, TheChildOfAVforkMirrorsNothing) {
  static_cast<void>(expect_follower());
  // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork)
  const pid_t child = vfork();
  if (child == 0) _exit(mirror_on_runtime_threads(SYS_getppid, 0, 0, 0, 0, 0) ? 0 : 1);
  expect_no_follower();
  expect_success(child);
}

}  // namespace
}  // namespace far::platform
