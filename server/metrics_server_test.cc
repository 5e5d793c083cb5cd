#include "server/metrics_server.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "platform/clock.h"
#include "server/http_request.h"
#include "server/own_metrics.h"

namespace far::server {
namespace {

using state = http_request::state;

const std::string token = "0123456789abcdef0123456789abcdef";

TEST(HttpRequest, IsReadUpToTheEmptyLine) {
  http_request asked;
  const std::string whole = "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nauthorization:  Bearer x y \r\n\r\n";
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(parse_http_request(std::string_view(whole).substr(0, length), &asked), state::incomplete) << length;
  }
  ASSERT_EQ(parse_http_request(whole + "body", &asked), state::complete);
  EXPECT_EQ(asked.method, "GET");
  EXPECT_EQ(asked.path, "/metrics");
  EXPECT_EQ(asked.authorization, "Bearer x y");
  EXPECT_EQ(parse_http_request("HEAD / HTTP/1.0\n\n", &asked), state::complete);
}

TEST(HttpRequest, WhatIsNoneIsSaidToBeNone) {
  http_request asked;
  for (const char* text : {"\n\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET / SPDY/3\r\n\r\n",
                           "GET / HTTP/1.1\r\nno colon\r\n\r\n", "\x16\x03\x01 \xff HTTP\r\n\r\n"}) {
    EXPECT_EQ(parse_http_request(text, &asked), state::malformed) << text;
  }
}

// A client that does what the test says.
class client {
 public:
  explicit client(const std::string& where, int receive_bytes = 0)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address to = parse_address(where).value();
    if (receive_bytes > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&to.raw), to.raw_bytes), 0);
  }
  ~client() { close(socket_); }
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  // False: the server has closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // Until the server closes the connection.
  std::string read_all() {
    std::string all;
    std::vector<char> part(1 << 16);
    ssize_t got = 0;
    while ((got = recv(socket_, part.data(), part.size(), 0)) > 0)
      all.append(part.data(), static_cast<std::size_t>(got));
    EXPECT_TRUE(got == 0 || errno == ECONNRESET) << "the server never closes the connection";
    was_reset_ = got < 0;
    return all;
  }
  [[nodiscard]] bool hears_within(int milliseconds) const {
    pollfd watched{.fd = socket_, .events = POLLIN, .revents = 0};
    return poll(&watched, 1, milliseconds) > 0;
  }
  // Then a reply that is still on its way may be lost.
  [[nodiscard]] bool was_reset() const { return was_reset_; }

 private:
  int socket_;
  bool was_reset_ = false;
};

class metrics_port : public testing::Test {
 protected:
  metrics_port() {
    store_settings settings;
    settings.memory_bytes = 8 * block_bytes;
    lent_ = std::move(store::create(settings)).value();
  }
  void start(const metrics_options& chosen = {}, const std::atomic<std::uint64_t>* looked_after_at_ns = nullptr) {
    server_ = std::move(metrics_server::start(
                            parse_address("127.0.0.1:0").value(),
                            std::make_unique<own_metrics>(server_view{.lent = lent_.get(), .loops = {}, .address = {}},
                                                          looked_after_at_ns),
                            chosen))
                  .value();
  }
  [[nodiscard]] std::string get(const std::string& path, const std::string& headers = "") {
    client asking(server_->where());
    EXPECT_TRUE(asking.send("GET " + path + " HTTP/1.1\r\n" + headers + "\r\n"));
    return asking.read_all();
  }
  static int code_of(const std::string& reply) { return reply.size() > 12 ? std::stoi(reply.substr(9, 3)) : 0; }

  std::unique_ptr<store> lent_;
  std::unique_ptr<metrics_server> server_;
};

TEST_F(metrics_port, has_four_pages) {
  start();
  EXPECT_NE(get("/metrics").find("farheapd_memory_bytes 16777216"), std::string::npos);
  EXPECT_NE(get("/").find("<html"), std::string::npos);
  EXPECT_EQ(code_of(get("/healthz")), 200);
  EXPECT_EQ(code_of(get("/readyz")), 200);
  EXPECT_EQ(code_of(get("/other")), 404);
  client posts(server_->where());
  ASSERT_TRUE(posts.send("POST / HTTP/1.1\r\n\r\n"));
  EXPECT_EQ(code_of(posts.read_all()), 405);
  client asks_for_the_head(server_->where());
  ASSERT_TRUE(asks_for_the_head.send("HEAD /metrics HTTP/1.1\r\n\r\n"));
  EXPECT_EQ(asks_for_the_head.read_all().find("farheapd_"), std::string::npos);
}

TEST_F(metrics_port, a_server_that_drains_lives_and_is_not_ready) {
  start();
  lent_->drain();
  EXPECT_EQ(code_of(get("/healthz")), 200);
  EXPECT_EQ(code_of(get("/readyz")), 503);
}

TEST_F(metrics_port, a_server_that_is_stuck_is_not_healthy) {
  const std::atomic<std::uint64_t> long_ago{1};
  const std::atomic<std::uint64_t> lately{platform::monotonic_clock().now_ns() + 3'600'000'000'000};
  ASSERT_GT(platform::monotonic_clock().now_ns(), 20'000'000'000u);
  start({}, &long_ago);
  EXPECT_EQ(code_of(get("/healthz")), 503);
  start({}, &lately);
  EXPECT_EQ(code_of(get("/healthz")), 200);
}

TEST_F(metrics_port, wants_its_token_and_probes_need_none) {
  token_book tokens = std::move(token_book::parse(token + "\n" + token + "2\n", "test")).value();
  start({.tokens = &tokens});
  for (const std::string& wrong :
       {std::string(), std::string("Authorization: Bearer \r\n"), "Authorization: Bearer " + token + "3\r\n",
        "Authorization: Basic " + token + "\r\n", std::string("Authorization: Bearer 0\r\n")}) {
    const std::string reply = get("/metrics", wrong);
    EXPECT_EQ(code_of(reply), 401) << wrong;
    EXPECT_EQ(reply.find("farheapd_"), std::string::npos);
    EXPECT_EQ(code_of(get("/", wrong)), 401) << wrong;
  }
  client asks_for_the_head(server_->where());
  ASSERT_TRUE(asks_for_the_head.send("HEAD /metrics HTTP/1.1\r\n\r\n"));
  EXPECT_EQ(code_of(asks_for_the_head.read_all()), 401);
  EXPECT_EQ(code_of(get("/metrics", "Authorization: Bearer " + token + "\r\n")), 200);
  EXPECT_EQ(code_of(get("/metrics", "authorization: Bearer " + token + "2\r\n")), 200);
  EXPECT_EQ(code_of(get("/healthz")), 200);
  EXPECT_EQ(code_of(get("/readyz")), 200);
}

TEST_F(metrics_port, whoever_guesses_tokens_has_to_wait_and_probes_do_not) {
  token_book tokens = std::move(token_book::parse(token, "test")).value();
  start({.tokens = &tokens});
  for (std::uint64_t i = 0; i <= 2 * failed_logins::burst; ++i) EXPECT_EQ(code_of(get("/metrics")), 401);
  int code = 401;
  for (std::uint64_t i = 0; i <= 20 * failed_logins::burst && code == 401; ++i) {
    code = code_of(get("/metrics", "Authorization: Bearer " + token + std::to_string(i) + "\r\n"));
  }
  EXPECT_EQ(code, 429);
  // One a second is heard, so a stalled machine may have to guess again.
  code = 0;
  for (int tries = 0; tries < 10 && code != 429; ++tries) {
    for (std::uint64_t i = 0; i <= 2 * failed_logins::burst; ++i) {
      static_cast<void>(get("/metrics", "Authorization: Bearer " + token + "wrong\r\n"));
    }
    code = code_of(get("/metrics", "Authorization: Bearer " + token + "\r\n"));
  }
  EXPECT_EQ(code, 429);
  EXPECT_EQ(code_of(get("/healthz")), 200);
}

TEST_F(metrics_port, a_header_without_an_end_is_not_kept) {
  start({.patience_ns = 3'600'000'000'000});
  client hostile(server_->where());
  ASSERT_TRUE(hostile.send("GET / HTTP/1.1\r\nX-Long: "));
  ASSERT_TRUE(hostile.send(std::string(metrics_server::most_request_bytes, 'x')));
  // It answers before the header has an end, and keeps nothing of what follows.
  static_cast<void>(hostile.send(std::string(std::size_t{8} << 20, 'x')));
  EXPECT_EQ(code_of(get("/metrics")), 200);
}

TEST_F(metrics_port, whoever_sends_more_than_is_read_gets_the_reply_all_the_same) {
  start();
  client talks(server_->where());
  ASSERT_TRUE(talks.send("GET /metrics HTTP/1.1\r\n\r\n" + std::string(std::size_t{4} << 20, 'x')));
  EXPECT_EQ(code_of(talks.read_all()), 200);
  EXPECT_FALSE(talks.was_reset());
}

TEST_F(metrics_port, a_header_that_is_too_long_is_refused) {
  start();
  client hostile(server_->where());
  ASSERT_TRUE(hostile.send("GET / HTTP/1.1\r\n" + std::string(metrics_server::most_request_bytes, 'x')));
  EXPECT_EQ(code_of(hostile.read_all()), 431);
}

// The number of connections is limited, and idle ones make way for those that ask.
TEST_F(metrics_port, idle_connections_keep_nobody_out) {
  start({.patience_ns = 3'600'000'000'000});
  std::vector<std::unique_ptr<client>> idle;
  for (std::size_t i = 0; i < 3 * metrics_server::most_connections; ++i) {
    idle.push_back(std::make_unique<client>(server_->where()));
    if (i % 2 == 0) static_cast<void>(idle.back()->send("GET /met"));
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(code_of(get("/metrics")), 200);
  EXPECT_EQ(idle.front()->read_all(), "") << "the oldest has been closed";
}

TEST_F(metrics_port, connections_that_say_nothing_end_in_time) {
  start({.patience_ns = 50'000'000});
  client silent(server_->where());
  client begins(server_->where());
  ASSERT_TRUE(begins.send("GET /metrics HTTP/1.1\r\nHost: "));
  EXPECT_EQ(silent.read_all(), "");
  EXPECT_EQ(begins.read_all(), "");
  // One that drips is not served for longer.
  client drips(server_->where());
  while (drips.send("x")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// More readers that do not read than there may be replies: probes and others are answered all the same.
TEST_F(metrics_port, readers_that_do_not_read_hold_nobody_up) {
  // Enough tenants for a text that no socket's buffer takes.
  std::vector<attachment> many;
  for (int i = 0; i < 20'000; ++i) {
    many.push_back(std::move(lent_->open("tenant-with-a-long-name-" + std::to_string(i), 0)).value());
  }
  // So long that none of them is sent away, even where a text takes a second to be made.
  start({.patience_ns = 60'000'000'000});
  std::vector<std::unique_ptr<client>> lazy;
  for (std::size_t i = 0; i < 2 * metrics_server::most_replies; ++i) {
    lazy.push_back(std::make_unique<client>(server_->where(), 4096));
    ASSERT_TRUE(lazy.back()->send("GET /metrics HTTP/1.1\r\n\r\n"));
  }
  EXPECT_EQ(code_of(get("/healthz")), 200);
  EXPECT_NE(get("/readyz").find("ok"), std::string::npos);
  client next(server_->where());
  ASSERT_TRUE(next.send("GET /metrics HTTP/1.1\r\n\r\n"));
  EXPECT_FALSE(next.hears_within(200)) << "there are as many replies in memory as there may be";
  lazy.clear();
  EXPECT_EQ(code_of(next.read_all()), 200);
  EXPECT_EQ(code_of(get("/metrics")), 200);
  for (attachment& one : many) lent_->leave(one, 0);
}

}  // namespace
}  // namespace far::server
