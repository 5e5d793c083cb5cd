// Sockets and threads: each thread has an epoll of its own, and the connections that it has accepted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "session.h"
#include "socket.h"
#include "store.h"

namespace cached {

struct server_options {
  std::string address = "127.0.0.1";
  std::uint16_t port = 11211;
  unsigned threads = 2;
  unsigned connection_limit = 1024;
  store_options items;
};

class server {
 public:
  // Listens. Throws std::runtime_error with a message for the user.
  explicit server(const server_options& options);

  [[nodiscard]] std::uint16_t port() const { return port_; }

  // Serves until stop(). The calling thread is one of the threads. Call it once.
  void run();
  // From any thread, and from signal handlers.
  void stop();

 private:
  void serve();

  std::unique_ptr<store> items_;
  server_facts facts_;
  std::uint16_t port_;
  descriptor listener_;
  descriptor stopping_;
};

}  // namespace cached
