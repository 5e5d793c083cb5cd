// A metrics port (`farheapd --metrics ADDR:PORT`, `farheap metrics --listen ADDR:PORT`): HTTP, on a thread of its own.
//
//     /metrics   for Prometheus       /healthz   200 while the program does its work, 503 when it is stuck
//     /          for people           /readyz    200 while it takes new clients, 503 while it does not
//
// Strangers may reach the port, and the program's main work must not suffer. So the number of connections, their memory
// and their time are limited. A connection carries one request.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "server/address.h"
#include "server/failed_logins.h"
#include "server/http_request.h"
#include "server/metrics_source.h"
#include "server/token_book.h"

namespace far::server {

struct metrics_options {
  // Requests must carry "Authorization: Bearer TOKEN" with a token of the tenant "default", except for /healthz and
  // /readyz. nullptr or empty: no token is required.
  const token_book* tokens = nullptr;
  const char* token_option = "--metrics-token-file";
  std::uint64_t patience_ns = 5'000'000'000;  // for a whole connection
};

class metrics_server {
 public:
  // When there are more connections, the oldest one is closed.
  static constexpr std::size_t most_connections = 32;
  static constexpr std::size_t most_request_bytes = 4096;
  // Each has a whole reply in memory; the others wait until one of them is done.
  static constexpr std::size_t most_replies = 4;

  // Errors: the address cannot be listened on. Requires: what `chosen` refers to outlives the server.
  [[nodiscard]] static result<std::unique_ptr<metrics_server>> start(address at, std::unique_ptr<metrics_source> shown,
                                                                     metrics_options chosen = {});
  ~metrics_server();
  metrics_server(const metrics_server&) = delete;
  metrics_server& operator=(const metrics_server&) = delete;

  // The address where it listens, with its actual port.
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  struct connection {
    enum class phase : std::uint8_t { reading, waiting, replying, closing };
    int socket = -1;
    std::string network;
    phase at = phase::reading;
    std::uint64_t since_ns = 0;
    std::string request;
    http_request asked;
    std::string reply;
    std::size_t sent_bytes = 0;
  };
  struct answer {
    int code = 200;
    const char* type = "text/plain; charset=utf-8";
    std::string body;
  };

  metrics_server(int listener, int waker, std::string where, std::unique_ptr<metrics_source> shown,
                 metrics_options chosen);
  void run();
  void accept_all(std::uint64_t now_ns);
  void step(connection& served, std::uint64_t now_ns);
  void read_request(connection& served);
  void make_reply(connection& served, std::uint64_t now_ns);
  [[nodiscard]] answer answer_to(const connection& served, std::uint64_t now_ns);
  enum class permission : std::uint8_t { granted, refused, throttled };
  [[nodiscard]] permission permission_of(const connection& served, std::uint64_t now_ns);
  void put(connection& served, const answer& said, bool with_body);
  void send_reply(connection& served);
  void wait_for_end(connection& served);
  void remove_ended(std::uint64_t now_ns);
  [[nodiscard]] std::size_t replies() const;
  [[nodiscard]] bool wait();

  const int listener_;
  const int waker_;
  const std::string where_;
  const std::unique_ptr<metrics_source> shown_;
  const metrics_options chosen_;
  failed_logins failures_;
  std::vector<std::unique_ptr<connection>> connections_;  // oldest first
  std::uint64_t accept_again_at_ns_ = 0;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace far::server
