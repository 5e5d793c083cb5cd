// An event loop with real sockets, on both transports.
#include "server/event_loop.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/store.h"
#include "server/token_book.h"
#include "tests/support/eventually.h"
#include "wire/client_handshake.h"

namespace far::server {
namespace {

// A client with its own socket, that waits for each answer.
class client {
 public:
  explicit client(event_loop& loop) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    socket_ = ends[0];
    const timeval deadline{.tv_sec = 60, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
    loop.adopt(ends[1], "a test");
  }
  ~client() { close(socket_); }
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  // "welcome", or why not.
  [[nodiscard]] std::string shake_hands() {
    using step = wire::client_handshake::step;
    wire::client_handshake mine{wire::credentials()};
    mine.begin({}, 0);
    while (true) {
      const std::span<const std::byte> out = mine.to_send();
      if (!out.empty() && send(socket_, out.data(), out.size(), MSG_NOSIGNAL) < 0) return "closed";
      mine.sent(out.size());
      const std::optional<wire::header> head = receive();
      if (!head) return "closed";
      switch (mine.take(*head, payload_)) {
        case step::more: break;
        case step::done: return "welcome";
        default: return mine.explanation();
      }
    }
  }

  [[nodiscard]] bool is_served() {
    std::array<std::byte, wire::header_bytes> ping{};
    wire::encode(wire::header{.op = wire::opcode::ping, .payload_checksum = wire::checksum({})}, ping);
    return send(socket_, ping.data(), ping.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(ping.size()) && receive();
  }

  [[nodiscard]] bool is_closed() {
    std::byte more{};
    return recv(socket_, &more, 1, 0) <= 0;
  }

 private:
  // The next message; its payload is in payload_.
  std::optional<wire::header> receive() {
    std::array<std::byte, wire::header_bytes> bytes{};
    if (recv(socket_, bytes.data(), bytes.size(), MSG_WAITALL) != static_cast<ssize_t>(bytes.size()))
      return std::nullopt;
    const std::optional<wire::header> head = wire::decode_header(bytes);
    payload_.resize(head ? head->payload_bytes : 0);
    const bool is_whole = payload_.empty() || recv(socket_, payload_.data(), payload_.size(), MSG_WAITALL) ==
                                                  static_cast<ssize_t>(payload_.size());
    return is_whole ? head : std::nullopt;
  }

  int socket_ = -1;
  std::vector<std::byte> payload_;
};

class event_loop_test : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    store_settings wanted;
    wanted.memory_bytes = 32 * mib;
    store_ = std::move(store::create(std::move(wanted))).value();
    protocol_.lent = store_.get();
    protocol_.tokens = &tokens_;
    start(0);
  }
  void start(std::uint64_t place_patience_ns) {
    if (loop_) loop_->end_now();
    loop_.reset();
    settings_ = {.protocol = &protocol_,
                 .most_connections = 2,
                 .use_io_uring = GetParam(),
                 .place_patience_ns = place_patience_ns};
    loop_ = std::make_unique<event_loop>(settings_, store_->readers());
  }
  void TearDown() override { loop_->end_now(); }

  std::unique_ptr<store> store_;
  token_book tokens_;
  protocol_settings protocol_;
  loop_settings settings_;
  std::unique_ptr<event_loop> loop_;
};

TEST_P(event_loop_test, a_client_that_is_one_too_many_hears_why) {
  client first(*loop_);
  std::optional<client> second(std::in_place, *loop_);
  ASSERT_EQ(first.shake_hands(), "welcome");
  ASSERT_EQ(second->shake_hands(), "welcome");
  for (int round = 0; round < 40; ++round) {
    client third(*loop_);
    const std::string said = third.shake_hands();
    ASSERT_NE(said.find("refuses: too many connections: the server has 2 for each thread"), said.npos) << said;
    ASSERT_NE(said.find("more --threads"), said.npos) << said;
    ASSERT_TRUE(third.is_closed());
  }
  EXPECT_TRUE(first.is_served());
  EXPECT_TRUE(second->is_served());
  second.reset();
  const auto is_welcome = [this] {
    client another(*loop_);
    return another.shake_hands() == "welcome";
  };
  EXPECT_TRUE(eventually(is_welcome)) << "there is room for another one again";
}

// As when a program ends, and the next one begins: the loop sees the end last.
TEST_P(event_loop_test, a_newcomer_waits_for_a_place_that_is_about_to_be_free) {
  start(60'000'000'000);
  client first(*loop_);
  std::optional<client> second(std::in_place, *loop_);
  ASSERT_EQ(first.shake_hands(), "welcome");
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(second->shake_hands(), "welcome");
    auto third = std::make_unique<client>(*loop_);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // the loop has seen it
    second.reset();
    ASSERT_EQ(third->shake_hands(), "welcome");
    ASSERT_TRUE(third->is_served());
    third.reset();
    second.emplace(*loop_);
  }
  EXPECT_TRUE(first.is_served());
}

TEST_P(event_loop_test, a_newcomer_does_not_wait_for_long) {
  start(1'000'000);
  client first(*loop_);
  client second(*loop_);
  ASSERT_EQ(first.shake_hands(), "welcome");
  ASSERT_EQ(second.shake_hands(), "welcome");
  client third(*loop_);
  EXPECT_NE(third.shake_hands().find("too many connections"), std::string::npos);
}

TEST_P(event_loop_test, of_a_crowd_some_wait_for_a_place) {
  start(60'000'000'000);
  client first(*loop_);
  std::optional<client> second(std::in_place, *loop_);
  ASSERT_EQ(first.shake_hands(), "welcome");
  ASSERT_EQ(second->shake_hands(), "welcome");
  std::vector<std::unique_ptr<client>> crowd;
  for (int i = 0; i < 100; ++i) crowd.push_back(std::make_unique<client>(*loop_));
  EXPECT_TRUE(crowd.back()->is_closed());
  second.reset();
  EXPECT_EQ(crowd.front()->shake_hands(), "welcome");
  // Those that wait are let go with the loop.
  loop_->end_now();
  loop_.reset();
  EXPECT_TRUE(crowd[1]->is_closed());
  start(0);
}

// They could keep as many descriptors of the server.
TEST_P(event_loop_test, of_a_crowd_that_is_too_many_and_says_nothing_some_are_waited_for) {
  client first(*loop_);
  client second(*loop_);
  ASSERT_EQ(first.shake_hands(), "welcome");
  ASSERT_EQ(second.shake_hands(), "welcome");
  {
    std::vector<std::unique_ptr<client>> crowd;
    for (int i = 0; i < 100; ++i) crowd.push_back(std::make_unique<client>(*loop_));
    EXPECT_TRUE(crowd.back()->is_closed());
    EXPECT_TRUE(eventually([this] { return loop_->connections() < 20; })) << loop_->connections();
    EXPECT_TRUE(first.is_served());
    EXPECT_TRUE(second.is_served());
  }
  const auto hears_why = [this] {
    client another(*loop_);
    return another.shake_hands().find("too many connections") != std::string::npos;
  };
  EXPECT_TRUE(eventually(hears_why));
}

INSTANTIATE_TEST_SUITE_P(transports, event_loop_test, testing::Bool());

}  // namespace
}  // namespace far::server
