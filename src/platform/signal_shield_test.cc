#include "platform/signal_shield.h"

#include <fenv.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <ctime>
#include <thread>

namespace far::platform {
namespace {

bool is_blocked(int number) {
  sigset_t now;
  EXPECT_EQ(sigprocmask(SIG_BLOCK, nullptr, &now), 0);
  return sigismember(&now, number) == 1;
}

TEST(signal_shield, blocks_signals_while_it_lives) {
  ASSERT_FALSE(is_blocked(SIGUSR1));
  {
    const signal_shield outer;
    EXPECT_TRUE(is_blocked(SIGUSR1));
    {
      const signal_shield inner;
    }
    EXPECT_TRUE(is_blocked(SIGUSR1));
  }
  EXPECT_FALSE(is_blocked(SIGUSR1));
}

struct call {
  std::uint64_t signals;
  unsigned char dispatch;
};
std::array<call, 8> ends;
unsigned begun = 0;
unsigned ended = 0;

constexpr shield_hooks counting{[](unsigned char* dispatch_before) noexcept {
                                  *dispatch_before = static_cast<unsigned char>(100 + begun);
                                  return std::uint64_t{begun++};
                                },
                                [](std::uint64_t signals_before, unsigned char dispatch_before) noexcept {
                                  ends[ended++] = {signals_before, dispatch_before};
                                }};

TEST(signal_shield, ends_as_it_began_where_there_are_hooks) {
  {
    const signal_shield without_hooks;
    installed_shield_hooks = &counting;
  }
  EXPECT_EQ(ended, 0u);
  EXPECT_FALSE(is_blocked(SIGUSR1));
  for (unsigned i = 0; i < 2; ++i) {
    const signal_shield outer;
    const signal_shield inner;
    EXPECT_EQ(begun, i + 1);
  }
  installed_shield_hooks = nullptr;
  ASSERT_EQ(ended, 2u);
  EXPECT_EQ(ends[0].signals, 0u);
  EXPECT_EQ(ends[0].dispatch, 100);
  EXPECT_EQ(ends[1].signals, 1u);
  EXPECT_EQ(ends[1].dispatch, 101);
}

struct cancelled_thread {
  std::atomic<bool> is_inside{false};
  std::atomic<bool> may_leave{false};
  std::atomic<bool> has_left{false};
};

// poll() is a cancellation point.
void* wait_in_shield(void* context) {
  auto& self = *static_cast<cancelled_thread*>(context);
  {
    const signal_shield outer;
    const signal_shield inner;
    self.is_inside = true;
    while (!self.may_leave) poll(nullptr, 0, 1);
  }
  self.has_left = true;
  pthread_testcancel();
  return nullptr;
}

TEST(signal_shield, keeps_its_thread_from_being_cancelled) {
  static cancelled_thread one;  // it outlives a thread that never ends
  one.is_inside = one.may_leave = one.has_left = false;
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, nullptr, wait_in_shield, &one), 0);
  while (!one.is_inside) std::this_thread::yield();
  ASSERT_EQ(pthread_cancel(thread), 0);
  poll(nullptr, 0, 20);
  one.may_leave = true;
  timespec deadline{};
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += 60;
  void* result = nullptr;
  ASSERT_EQ(pthread_timedjoin_np(thread, &result, &deadline), 0);
  EXPECT_TRUE(one.has_left);
  EXPECT_EQ(result, PTHREAD_CANCELED);
}

double third_of(double number) {
  volatile double divided = number;
  divided = divided / 3;
  return divided;
}

// The runtime would end a program in which inexact results trap, and note some in one that looks for them.
TEST(signal_shield, calculates_as_usual_and_leaves_the_programs_arithmetic_alone) {
  const double usual = third_of(1);
  fenv_t before;
  ASSERT_EQ(feholdexcept(&before), 0);
  ASSERT_EQ(fesetround(FE_UPWARD), 0);
  const double upward = third_of(1);
  ASSERT_NE(upward, usual);
  ASSERT_EQ(feclearexcept(FE_ALL_EXCEPT), 0);
#if defined(__x86_64__)  // elsewhere nothing traps
  ASSERT_NE(feenableexcept(FE_INEXACT), -1);
#endif
  double inside = 0;
  {
    const signal_shield outer;
    const signal_shield inner;
    inside = third_of(1);
  }
  const int noted = fetestexcept(FE_ALL_EXCEPT);
  fedisableexcept(FE_ALL_EXCEPT);
  const double after = third_of(1);
  fesetenv(&before);
  EXPECT_EQ(inside, usual);
  EXPECT_EQ(noted, 0);
  EXPECT_EQ(after, upward);
}

}  // namespace
}  // namespace far::platform
