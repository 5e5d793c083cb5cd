#include "platform/program_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <string_view>
#include <thread>

#include "platform/signal_shield.h"

namespace far::platform {
namespace {

bool is_blocked(int number) {
  sigset_t now;
  EXPECT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &now), 0);
  return sigismember(&now, number) == 1;
}

TEST(program_thread, runs_none_of_the_programs_signal_handlers) {
  start_program_thread("of-the-test", [] {
    for (const int number : {SIGUSR1, SIGTERM, SIGINT, SIGCHLD, SIGRTMAX}) EXPECT_TRUE(is_blocked(number)) << number;
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGPROF}) EXPECT_FALSE(is_blocked(number)) << number;
    std::array<char, 16> name{};
    EXPECT_EQ(pthread_getname_np(pthread_self(), name.data(), name.size()), 0);
    EXPECT_EQ(std::string_view(name.data()), "of-the-test");
  }).join();
  EXPECT_FALSE(is_blocked(SIGUSR1)) << "its creator is as before";
}

TEST(program_thread, lets_in_what_its_creator_blocks) {
  const signal_shield all_blocked;
  start_program_thread("of-the-test", [] {
    EXPECT_TRUE(is_blocked(SIGUSR1));
    EXPECT_FALSE(is_blocked(SIGSEGV));
  }).join();
  EXPECT_TRUE(is_blocked(SIGSEGV));
}

}  // namespace
}  // namespace far::platform
