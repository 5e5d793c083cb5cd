// The runtime's threads take no signals of the program. Needs permission for userfaultfd.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "far/runtime.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using runtime_signals_test = heap::real_pager_test<>;

// The names of the process's threads that do not block the signal.
std::vector<std::string> threads_that_take(int signal) {
  std::vector<std::string> names;
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(one.path() / "comm"), name);
    std::ifstream status(one.path() / "status");
    for (std::string line; std::getline(status, line);) {
      constexpr std::string_view blocked = "SigBlk:";
      if (!line.starts_with(blocked)) continue;
      const std::uint64_t mask = std::stoull(line.substr(blocked.size()), nullptr, 16);
      if ((mask >> (signal - 1) & 1) == 0) names.push_back(name);
    }
  }
  return names;
}

// As where a static runtime is older than main(), which blocks a signal in order to wait for it.
TEST_F(runtime_signals_test, the_programs_signals_are_for_the_program) {
  struct sigaction before{};
  struct sigaction counting{};
  static std::atomic<int> handled;
  handled = 0;
  counting.sa_handler = [](int) { ++handled; };
  ASSERT_EQ(sigaction(SIGUSR1, &counting, &before), 0);
  {
    runtime_options chosen = heap::small_runtime();
    chosen.evacuate_garbage_share = 0.5;
    runtime farheap(chosen);
    farheap.run([] {});
    sigset_t waited_for;
    sigset_t mask_before;
    sigemptyset(&waited_for);
    sigaddset(&waited_for, SIGUSR1);
    ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &waited_for, &mask_before), 0);
    EXPECT_EQ(threads_that_take(SIGUSR1), std::vector<std::string>());
    EXPECT_EQ(kill(getpid(), SIGUSR1), 0);
    const timespec patience{.tv_sec = 30, .tv_nsec = 0};
    EXPECT_EQ(sigtimedwait(&waited_for, nullptr, &patience), SIGUSR1);
    EXPECT_EQ(handled, 0);
    EXPECT_EQ(pthread_sigmask(SIG_SETMASK, &mask_before, nullptr), 0);
  }
  EXPECT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
}

}  // namespace
}  // namespace far
