// Running out of stack is told by name; other faults reach the program's handler.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "base/units.h"
#include "tests/support/fiber_runs.h"

namespace far::fiber {
namespace {

using namespace testing;

// Each level uses about a KiB of stack. Never returns for a depth that no stack holds.
[[gnu::noinline]] int descend(unsigned depth, void (*at_each_level)()) {
  volatile char room[1024];
  room[0] = static_cast<char>(depth);
  if (at_each_level != nullptr) at_each_level();
  const int below = depth == 0 ? 0 : descend(depth - 1, at_each_level);
  return below + room[0];
}

struct overflow_death : ::testing::Test {
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(overflow_death, names_the_fiber_that_ran_out_of_its_stack) {
  EXPECT_DEATH(
      {
        scheduler workers(with_workers(1));
        workers.spawn([] { descend(1'000'000, nullptr); }, {.name = "parser"}).join();
      },
      "fiber 'parser' \\(number 1\\) ran out of its stack of [0-9]+ KiB");
}

TEST_F(overflow_death, names_it_when_there_is_no_room_for_the_frame_of_a_signal) {
  if (sanitizers::present) GTEST_SKIP() << "sanitizers handle signals in their own way";
  EXPECT_DEATH(
      {
        scheduler workers(with_workers(1));
        struct sigaction ignore{};
        ignore.sa_handler = [](int) {};
        sigaction(SIGTRAP, &ignore, nullptr);
        workers.spawn([] { descend(1'000'000, [] { raise(SIGTRAP); }); }, {.name = "tracer"}).join();
      },
      "fiber 'tracer' \\(number 1\\) ran out of its stack");
}

TEST_F(overflow_death, other_faults_on_a_fiber_kill_as_always) {
  if (sanitizers::present) GTEST_SKIP() << "sanitizers report the fault themselves";
  EXPECT_EXIT(
      {
        scheduler workers(with_workers(1));
        workers.spawn([] { *static_cast<volatile int*>(nullptr) = 1; }).join();
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

struct sigaction below_program{};

// The program's, over ours. It says so once; if it is called by those that it calls, there would be no end.
void report_and_pass_on(int signal, siginfo_t* info, void* context) {
  static bool is_called = false;
  if (std::exchange(is_called, true)) _exit(3);
  std::fputs("the program's handler was called\n", stderr);
  below_program.sa_sigaction(signal, info, context);
}

void put_over_ours() {
  struct sigaction programs{};
  programs.sa_sigaction = report_and_pass_on;
  programs.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &programs, &below_program);
}

TEST_F(overflow_death, a_handler_that_outlives_a_scheduler_is_called_once_by_a_fault_in_the_next) {
  if (sanitizers::present) GTEST_SKIP() << "sanitizers report the fault themselves";
  EXPECT_EXIT(
      {
        {
          const scheduler first(with_workers(1));
          put_over_ours();
        }
        scheduler second(with_workers(1));
        second.spawn([] { *static_cast<volatile int*>(nullptr) = 1; }).join();
      },
      ::testing::KilledBySignal(SIGSEGV), "the program's handler was called");
}

TEST_F(overflow_death, names_the_fiber_below_a_handler_that_outlives_a_scheduler) {
  if (sanitizers::present) GTEST_SKIP() << "sanitizers handle signals in their own way";
  EXPECT_EXIT(
      {
        {
          const scheduler first(with_workers(1));
          put_over_ours();
        }
        scheduler second(with_workers(1));
        second.spawn([] { descend(1'000'000, nullptr); }, {.name = "parser"}).join();
      },
      ::testing::KilledBySignal(SIGSEGV), "fiber 'parser' \\(number 1\\) ran out of its stack");
}

// The program has no handler any more, so ours is in its place again.
TEST_F(overflow_death, names_the_fiber_after_a_handler_that_has_gone) {
  if (sanitizers::present) GTEST_SKIP() << "sanitizers handle signals in their own way";
  EXPECT_EXIT(
      {
        {
          const scheduler first(with_workers(1));
          put_over_ours();
        }
        ::signal(SIGSEGV, SIG_DFL);
        scheduler second(with_workers(1));
        second.spawn([] { descend(1'000'000, nullptr); }, {.name = "parser"}).join();
      },
      ::testing::KilledBySignal(SIGSEGV), "fiber 'parser' \\(number 1\\) ran out of its stack");
}

TEST(overflow, a_stack_of_the_size_asked_for_is_enough) {
  scheduler workers(with_workers(1));
  constexpr unsigned levels = scaled(4000, 4);
  workers.spawn([] { descend(levels, nullptr); }, {.stack_bytes = 8 * mib}).join();
}

std::byte* guarded_page = nullptr;
std::atomic<int> faults = 0;

TEST(overflow, other_faults_reach_the_handler_that_the_program_had_before) {
  struct sigaction programs{};
  struct sigaction original{};
  programs.sa_sigaction = [](int, siginfo_t* info, void*) {
    if (info->si_addr != guarded_page) abort();
    ++faults;
    mprotect(guarded_page, page_bytes, PROT_READ | PROT_WRITE);
  };
  programs.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &programs, &original);
  guarded_page = static_cast<std::byte*>(mmap(nullptr, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  {
    scheduler workers(with_workers(1));
    scheduler second(with_workers(1));
    workers.spawn([] { *static_cast<volatile std::byte*>(guarded_page) = std::byte{1}; }).join();
  }
  struct sigaction now{};
  sigaction(SIGSEGV, &original, &now);
  EXPECT_EQ(now.sa_sigaction, programs.sa_sigaction);  // put back
  EXPECT_EQ(faults, 1);
  munmap(guarded_page, page_bytes);
}

}  // namespace
}  // namespace far::fiber
