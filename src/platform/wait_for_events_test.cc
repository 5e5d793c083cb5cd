#include "platform/wait_for_events.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <span>

namespace far::platform {
namespace {

constexpr std::int64_t pause_ns = 20'000'000;
constexpr std::int64_t long_ns = 60'000'000'000;

class WaitForEvents : public testing::TestWithParam<rlim_t> {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe(pipe_.data()), 0);
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit limited{std::min(GetParam(), before_.rlim_max), before_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limited), 0);
  }
  void TearDown() override {
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0);
    for (const int end : pipe_) close(end);
  }
  [[nodiscard]] std::array<pollfd, 3> sources() const {
    return {{{pipe_[0], POLLIN, 0}, {-1, POLLIN, POLLIN}, {pipe_[1], POLLOUT, 0}}};
  }

  std::array<int, 2> pipe_{};
  rlimit before_{};
};

TEST_P(WaitForEvents, SaysWhichDescriptorsAreReady) {
  std::array<pollfd, 3> watched = sources();
  EXPECT_EQ(wait_for_events(watched, -1), 1);
  EXPECT_EQ(watched[0].revents, 0);
  EXPECT_EQ(watched[1].revents, 0);
  EXPECT_EQ(watched[2].revents, POLLOUT);
  ASSERT_EQ(write(pipe_[1], "x", 1), 1);
  EXPECT_EQ(wait_for_events(watched, long_ns), 2);
  EXPECT_EQ(watched[0].revents, POLLIN);
  EXPECT_EQ(watched[2].revents, POLLOUT);
}

TEST_P(WaitForEvents, WaitsForTheWholeTimeWhereNothingHappens) {
  std::array<pollfd, 3> watched = sources();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(wait_for_events(std::span(watched).first(2), pause_ns), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::nanoseconds(pause_ns));
  EXPECT_EQ(watched[0].revents, 0);
  EXPECT_EQ(wait_for_events(std::span(watched).first(2), 0), 0);
}

// Fewer than are watched, and as many as can be.
INSTANTIATE_TEST_SUITE_P(Limits, WaitForEvents, testing::Values(0, 2, RLIM_INFINITY));

// select(2) does not know such numbers, so they are to be looked at again soon.
TEST(WaitForEventsBeyondSelect, DoesNotWaitForEver) {
  std::array<pollfd, 1> watched{{{100'000, POLLIN, 0}}};
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit limited{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limited), 0);
  EXPECT_EQ(wait_for_events(watched, -1), 0);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace far::platform
