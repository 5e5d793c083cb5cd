// A relay between a client and a server on loopback that can hold back what a connection's client sends, even beyond
// the client's end, and let it through later.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "tests/support/loopback.h"

namespace far::testing_support {

class holding_relay {
 public:
  explicit holding_relay(std::uint16_t server_port) : server_port_(server_port) {
    sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof address;
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FAR_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes) == 0 && listen(listener_, 8) == 0 &&
                  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes) == 0,
              "a port for the relay");
    port_ = ntohs(address.sin_port);
    relaying_ = std::thread([this] { relay(); });
  }
  ~holding_relay() {
    stopping_.store(true);
    relaying_.join();
    for (const pair& relayed : pairs_) {
      if (relayed.client >= 0) close(relayed.client);
      close(relayed.server);
    }
    close(listener_);
  }
  holding_relay(const holding_relay&) = delete;
  holding_relay& operator=(const holding_relay&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }

  // Holds back what comes from now on over the connections that there are.
  void hold() {
    const std::lock_guard guard(lock_);
    for (pair& relayed : pairs_) relayed.holds = true;
  }

  // Sends what was held back, as far as the server still takes it, and waits until it has answered or ended the
  // connection. Returns how many bytes had been held back.
  std::size_t release() {
    const std::lock_guard guard(lock_);
    std::size_t held = 0;
    for (pair& relayed : pairs_) {
      if (!relayed.holds) continue;
      held += relayed.held.size();
      // The server may have ended it.
      static_cast<void>(send(relayed.server, relayed.held.data(), relayed.held.size(), MSG_NOSIGNAL));
      pollfd watched{.fd = relayed.server, .events = POLLIN, .revents = 0};
      FAR_CHECK(poll(&watched, 1, 120'000) == 1, "the server answers, or has ended the connection");
      relayed.held.clear();
    }
    return held;
  }

 private:
  struct pair {
    int client = -1;
    int server = -1;
    bool holds = false;
    std::vector<char> held{};
  };

  void relay() {
    while (!stopping_.load()) {
      std::vector<pollfd> watched{{.fd = listener_, .events = POLLIN, .revents = 0}};
      {
        const std::lock_guard guard(lock_);
        for (const pair& relayed : pairs_) {
          watched.push_back({.fd = relayed.client, .events = POLLIN, .revents = 0});
          watched.push_back({.fd = relayed.holds ? -1 : relayed.server, .events = POLLIN, .revents = 0});
        }
      }
      poll(watched.data(), watched.size(), 10);
      const std::lock_guard guard(lock_);
      for (std::size_t i = 0; 2 * i + 2 < watched.size(); ++i) {
        if (watched[2 * i + 1].revents != 0) from_client(pairs_[i]);
        if (watched[2 * i + 2].revents != 0 && !pairs_[i].holds) from_server(pairs_[i]);
      }
      if (watched[0].revents != 0) accept_one();
    }
  }

  void accept_one() {
    pair added{.client = accept(listener_, nullptr, nullptr), .server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const sockaddr_in address = loopback(server_port_);
    FAR_CHECK(connect(added.server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
              "the relay's server listens");
    pairs_.push_back(added);
  }

  // Its end is not passed on: bytes that it has sent may still be on their way.
  static void from_client(pair& relayed) {
    char bytes[16384];
    const ssize_t got = recv(relayed.client, bytes, sizeof bytes, 0);
    if (got <= 0) {
      close(relayed.client);
      relayed.client = -1;
    } else if (relayed.holds) {
      relayed.held.insert(relayed.held.end(), bytes, bytes + got);
    } else {
      static_cast<void>(send(relayed.server, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL));
    }
  }

  static void from_server(pair& relayed) {
    char bytes[16384];
    const ssize_t got = recv(relayed.server, bytes, sizeof bytes, 0);
    if (relayed.client < 0) return;
    if (got > 0) static_cast<void>(send(relayed.client, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL));
    if (got > 0) return;
    close(relayed.client);
    relayed.client = -1;
  }

  const std::uint16_t server_port_;
  std::uint16_t port_ = 0;
  int listener_ = -1;
  std::mutex lock_;
  std::vector<pair> pairs_;
  std::atomic<bool> stopping_{false};
  std::thread relaying_;
};

}  // namespace far::testing_support
