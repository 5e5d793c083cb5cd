#include "platform/thread_identity.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "platform/signal_shield.h"

namespace far::platform {
namespace {

// What each thread has for itself, and any user may change.
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
  const std::uint64_t inherited = expect_follower();
  std::thread follower([&] {
    static_cast<void>(block_signals());
    let_identity_change();
    follow_identity(inherited);
    ready.store(true);
    while (!done.load()) std::this_thread::yield();
    slack_of_follower = timer_slack_ns();
    unfollow_identity();
  });
  while (!ready.load()) std::this_thread::yield();
  for (const long slack_ns : {70'001L, 70'002L}) {
    EXPECT_TRUE(mirror_on_runtime_threads(SYS_prctl, PR_SET_TIMERSLACK, slack_ns, 0, 0, 0));
  }
  done.store(true);
  follower.join();
  other.join();
  EXPECT_EQ(slack_of_follower, 70'002);
  EXPECT_NE(slack_of_other, 70'002);
  EXPECT_NE(timer_slack_ns(), 70'002);
  // Nobody follows any more, and nobody is waited for.
  EXPECT_TRUE(mirror_on_runtime_threads(SYS_prctl, PR_SET_TIMERSLACK, 70'003, 0, 0, 0));
}

// The C library's own use of the signal goes on as ever.
TEST(ThreadIdentity, TheCLibraryReachesEveryThreadAllTheSame) {
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

}  // namespace
}  // namespace far::platform
