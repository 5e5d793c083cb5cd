#include "server/transport.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <thread>

#include "platform/clock.h"

namespace far::server {
namespace {

std::uint64_t now() {
  return platform::monotonic_clock().now_ns();
}

class EpollTransport : public ::testing::Test {
 protected:
  ~EpollTransport() override {
    if (ends[0] < 0) return;
    moved->remove(1);
    for (const int end : ends) close(end);
  }

  // Connection 1, whose other end is ends[1]; what it sends goes into `room`.
  void receive_on_a_connection() {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    moved->add(1, ends[0]);
    moved->receive(1, room);
  }

  std::unique_ptr<transport> moved = make_epoll_transport(4).value();
  std::array<transport::event, 8> events;
  std::array<int, 2> ends{-1, -1};
  std::array<std::byte, 16> room{};
};

// The shortest of many: others may have the processor for any length of time.
TEST_F(EpollTransport, WaitsForLessThanAMillisecond) {
  std::uint64_t shortest_ns = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t began_ns = now();
    EXPECT_EQ(moved->wait(events, 10'000), 0u);
    const std::uint64_t took_ns = now() - began_ns;
    EXPECT_GE(took_ns, 10'000u);
    shortest_ns = std::min(shortest_ns, took_ns);
  }
  EXPECT_LT(shortest_ns, 1'000'000u) << "whole milliseconds";
}

TEST_F(EpollTransport, IsWokenOutOfALongWait) {
  constexpr std::uint64_t minute_ns = 60'000'000'000;
  std::thread waker([&] { moved->wake(); });
  EXPECT_EQ(moved->wait(events, minute_ns), 1u);
  EXPECT_EQ(events[0].kind, transport::motion::woken);
  waker.join();
}

TEST_F(EpollTransport, KeepsAWakeUpThatHadNoRoom) {
  receive_on_a_connection();
  ASSERT_EQ(::send(ends[1], "four", 4, 0), 4);
  moved->wake();
  ASSERT_EQ(moved->wait(std::span(events).first(1), 0), 1u);
  EXPECT_EQ(events[0].kind, transport::motion::received);
  const std::uint64_t began_ns = now();
  ASSERT_EQ(moved->wait(events, 5'000'000'000), 1u);
  EXPECT_EQ(events[0].kind, transport::motion::woken);
  EXPECT_LT(now() - began_ns, 4'000'000'000u);
}

TEST_F(EpollTransport, MovesBytes) {
  receive_on_a_connection();
  EXPECT_EQ(moved->wait(events, 0), 0u);
  std::thread sender([&] { EXPECT_EQ(::send(ends[1], "four", 4, 0), 4); });
  std::size_t count = 0;
  while (count == 0) count = moved->wait(events, 60'000'000'000);
  sender.join();
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(events[0].kind, transport::motion::received);
  EXPECT_EQ(events[0].connection, 1u);
  EXPECT_EQ(events[0].outcome, 4);
}

}  // namespace
}  // namespace far::server
