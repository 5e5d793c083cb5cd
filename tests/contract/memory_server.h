// A farheapd in the test's own process, on a port of its own of the loopback interface.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "server/event_loop.h"
#include "server/protocol.h"
#include "server/store.h"
#include "server/token_book.h"
#include "tests/support/reserved_port.h"
#include "wire/tls.h"

namespace far::testing_support {

struct memory_server_options {
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  std::uint64_t grace_ns = 10'000'000'000;
  std::string token{};             // empty: none is wanted. Of the tenant "default"
  std::string certificate_file{};  // empty: no TLS
  std::string key_file{};
};

// Stops the test program with a message when it cannot do what it is asked for.
class memory_server {
 public:
  explicit memory_server(const memory_server_options& chosen);
  ~memory_server();
  memory_server(const memory_server&) = delete;
  memory_server& operator=(const memory_server&) = delete;

  // "127.0.0.1:40123".
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_.number()); }

  // As if it was killed: every connection ends, and nobody listens any more.
  void kill();
  // Starts again at the same address, with nothing of what it held.
  void restart();
  void drain();
  [[nodiscard]] server::store_report report() const { return store_->report(); }

 private:
  void start();
  void accept_connections();

  const memory_server_options chosen_;
  const reserved_port port_;
  server::token_book tokens_;
  std::unique_ptr<wire::tls_context> security_;
  std::unique_ptr<server::store> store_;
  server::protocol_settings protocol_;
  server::loop_settings loop_settings_;
  std::unique_ptr<server::event_loop> loop_;
  int listener_ = -1;
  std::atomic<bool> stopping_{false};
  std::thread accepting_;
};

}  // namespace far::testing_support
