// How long a link waits for its server: for one that takes or gives a byte now and then, each time before anybody gives
// up, and for the end of one's lease.
#include "device/server_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tests/support/scripted_server.h"

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

// A session on a server that has fallen silent just now.
class silent_server : public ::testing::Test {
 protected:
  static constexpr std::uint64_t lease_ns = 90'000 * ms;  // as scripted_server has it

  void SetUp() override {
    server.on_call = [](std::span<const std::byte>) {
      std::vector<std::byte> said(wire::device_reply_bytes);
      wire::encode(wire::device_reply{}, std::span(said).first<wire::device_reply_bytes>());
      return backend::scripted_server::call_result{.payload = said};
    };
    times.clock = &time;
    link =
        server_link::assemble("tcp://away:1", std::make_unique<backend::scripted_stream>(server, network), {}, times);
    ASSERT_EQ(link->ask({.op = wire::device_op::construct}, how).how, link_answer::kind::answered);
    network.unreachable = true;
    network.cut_sent_at = network.sent + 1;
    ASSERT_FALSE(link->leave(how));
  }
  [[nodiscard]] bool is_told() const { return server.requests.back() == wire::opcode::close; }

  const device_link::patience how{.reach_ns = 1000 * ms, .answer_ns = 1000 * ms, .again = false};
  moved_clock time;
  device_times times;
  backend::scripted_server server;
  backend::scripted_stream::script network;
  std::unique_ptr<device_link> link;
};

// Its lease begins when the server finds the connection gone.
TEST_F(silent_server, may_have_the_session_after_one_lease) {
  time.ns += lease_ns + ms;
  EXPECT_FALSE(link->leave(how));
  time.ns += lease_ns - ms;
  network.unreachable = false;
  EXPECT_TRUE(link->leave(how));
  EXPECT_TRUE(is_told());
}

TEST_F(silent_server, has_the_session_no_more_after_two_leases) {
  time.ns += 2 * lease_ns + ms;
  const std::size_t connects = network.used_addresses.size();
  EXPECT_TRUE(link->leave(how));
  EXPECT_EQ(network.used_addresses.size(), connects) << "nobody needs to be told";
}

}  // namespace
}  // namespace far::device_parts
