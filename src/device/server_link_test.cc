// Deadlines of a link whose server takes or gives a byte now and then: each time before anybody gives up.
#include "device/server_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>

namespace far::device_parts {
namespace {

constexpr std::uint64_t ms = device_times::ms;

struct moved_clock final : platform::clock {
  mutable std::uint64_t ns = 1'000'000'000;
  [[nodiscard]] std::uint64_t now_ns() const override { return ns; }
};

// Each call takes 100 ms.
class slow_stream final : public backend::byte_stream {
 public:
  slow_stream(moved_clock& time, std::size_t most_sent) : time_(time), most_sent_(most_sent) {}

  int connect() override { return 0; }
  int finish_connecting() override { return 0; }
  std::ptrdiff_t try_send(std::span<const iovec> chunks) override {
    time_.ns += 100 * ms;
    return static_cast<std::ptrdiff_t>(chunks.empty() ? 0 : std::min(chunks[0].iov_len, most_sent_));
  }
  std::ptrdiff_t try_receive(std::span<const iovec> into) override {
    time_.ns += 100 * ms;
    std::memset(into[0].iov_base, 0, 1);
    return 1;
  }
  void close() override {}
  void abandon() override {}
  [[nodiscard]] int descriptor() const override { return -1; }
  void wait(std::uint64_t timeout_ns) override { time_.ns += timeout_ns; }

 private:
  moved_clock& time_;
  const std::size_t most_sent_;
};

void expect_an_end(std::size_t most_sent) {
  moved_clock time;
  device_times times;
  times.clock = &time;
  const std::unique_ptr<device_link> link =
      server_link::assemble("tcp://slow:1", std::make_unique<slow_stream>(time, most_sent), {}, times);
  const std::uint64_t began_ns = time.ns;
  const link_answer got =
      link->ask({.op = wire::device_op::compute}, {.reach_ns = 1000 * ms, .answer_ns = 1000 * ms, .again = false});
  EXPECT_EQ(got.how, link_answer::kind::unreachable);
  EXPECT_NE(got.why.find("does not answer in time"), std::string::npos) << got.why;
  EXPECT_LE(time.ns - began_ns, 1300 * ms);
}

TEST(server_link, a_server_that_takes_single_bytes_is_given_up_in_time) {
  expect_an_end(1);
}

TEST(server_link, a_server_that_gives_single_bytes_is_given_up_in_time) {
  expect_an_end(1000);
}

// Takes everything, and gives nothing. After a second of that, nobody wants to know any more.
class silent_stream final : public backend::byte_stream {
 public:
  silent_stream(moved_clock& time, std::atomic<bool>& given_up)
      : time_(time), given_up_(given_up), enough_at_ns_(time.ns + 1000 * ms) {}

  int connect() override { return 0; }
  int finish_connecting() override { return 0; }
  std::ptrdiff_t try_send(std::span<const iovec> chunks) override {
    return static_cast<std::ptrdiff_t>(chunks.empty() ? 0 : chunks[0].iov_len);
  }
  std::ptrdiff_t try_receive(std::span<const iovec> /*into*/) override { return 0; }
  void close() override {}
  void abandon() override {}
  [[nodiscard]] int descriptor() const override { return -1; }
  void wait(std::uint64_t timeout_ns) override {
    time_.ns += timeout_ns;
    given_up_ = time_.ns >= enough_at_ns_;
  }

 private:
  moved_clock& time_;
  std::atomic<bool>& given_up_;
  const std::uint64_t enough_at_ns_;
};

TEST(server_link, a_question_that_is_given_up_is_not_waited_for) {
  for (const bool again : {false, true}) {
    moved_clock time;
    device_times times;
    times.clock = &time;
    std::atomic<bool> given_up{false};
    const std::unique_ptr<device_link> link =
        server_link::assemble("tcp://silent:1", std::make_unique<silent_stream>(time, given_up), {}, times);
    const std::uint64_t began_ns = time.ns;
    const link_answer got =
        link->ask({.op = wire::device_op::compute},
                  {.reach_ns = 60'000 * ms, .answer_ns = 60'000 * ms, .again = again, .given_up = &given_up});
    EXPECT_EQ(got.how, link_answer::kind::unreachable);
    EXPECT_LE(time.ns - began_ns, 1300 * ms) << again;
  }
}

}  // namespace
}  // namespace far::device_parts
