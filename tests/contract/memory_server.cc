#include "memory_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "platform/clock.h"
#include "tests/support/loopback.h"

namespace far::testing_support {
namespace {

// How often the store is looked after; connections are accepted at once.
constexpr int tick_ms = 2;

template <typename T>
T require(result<T> outcome) {
  if (!outcome.ok()) {
    std::fprintf(stderr, "cannot start a memory server for the test: %s\n", outcome.error().message.c_str());
    std::abort();
  }
  return std::move(outcome).value();
}

void require(bool done, const char* step) {
  if (done) return;
  std::perror(step);
  std::abort();
}

}  // namespace

memory_server::memory_server(const memory_server_options& chosen) : chosen_(chosen) {
  if (!chosen_.token.empty()) tokens_ = require(server::token_book::parse(chosen_.token + "\n", "tokens of the test"));
  if (!chosen_.certificate_file.empty()) {
    security_ = require(wire::tls_context::for_server(chosen_.certificate_file, chosen_.key_file));
  }
  start();
}

memory_server::~memory_server() {
  kill();
}

void memory_server::start() {
  server::store_settings lends;
  lends.memory_bytes = chosen_.memory_bytes;
  lends.grace_ns = chosen_.grace_ns;
  store_ = require(server::store::create(std::move(lends)));
  protocol_ = {};
  protocol_.lent = store_.get();
  protocol_.tokens = &tokens_;
  loop_settings_ = {};
  loop_settings_.protocol = &protocol_;
  loop_settings_.security = security_.get();
  loop_settings_.most_connections = 64;
  loop_ = std::make_unique<server::event_loop>(loop_settings_, store_->readers());

  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  require(listener_ >= 0, "socket");
  const int one = 1;
  require(setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0, "setsockopt");
  const sockaddr_in address = loopback(port_.number());
  require(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "bind");
  require(listen(listener_, 16) == 0, "listen");
  stopping_.store(false);
  accepting_ = std::thread([this] { accept_connections(); });
}

void memory_server::accept_connections() {
  while (!stopping_.load()) {
    pollfd arriving{.fd = listener_, .events = POLLIN, .revents = 0};
    if (poll(&arriving, 1, tick_ms) > 0) {
      const int arrived = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      const int one = 1;
      if (arrived >= 0) {
        static_cast<void>(setsockopt(arrived, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
        loop_->adopt(arrived, "a client of the test");
      }
    }
    store_->expire(platform::monotonic_clock().now_ns());
    store_->reclaim();
  }
}

void memory_server::kill() {
  if (listener_ < 0) return;
  stopping_.store(true);
  accepting_.join();
  close(std::exchange(listener_, -1));
  loop_->end_now();
  loop_.reset();
}

void memory_server::restart() {
  kill();
  store_.reset();
  start();
}

void memory_server::drain() {
  store_->drain();
  loop_->drain();
}

}  // namespace far::testing_support
