// Where a server listens: "127.0.0.1:7070", "[::1]:7070", "localhost:7070", "0.0.0.0:0".
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base/result.h"

namespace far::server {

struct address {
  sockaddr_storage raw{};
  socklen_t raw_bytes = 0;

  // Only this machine can reach it.
  [[nodiscard]] bool is_loopback() const;
  // "127.0.0.1:7070", "[::1]:7070".
  [[nodiscard]] std::string text() const;
  // Without the port and without brackets.
  [[nodiscard]] std::string host() const;
  [[nodiscard]] std::uint16_t port() const;
  // As network_of().
  [[nodiscard]] std::string network() const;
};

// Errors name the text and show a right example. Host names other than "localhost" are refused, because a name service
// would then decide where the server listens.
[[nodiscard]] result<address> parse_address(const std::string& text);

// A listening socket, non-blocking; `at` becomes its actual address (port 0: the kernel chooses). Errors: in use, not
// this machine's, no permission. They say what to do.
[[nodiscard]] result<int> listen_at(address* at);

// The address of the connected peer; "an unknown address" when it is gone.
[[nodiscard]] std::string peer_of(int socket);

// What limits of a peer count by: its address without the port; of IPv6 the first 64 bits, since one machine has all
// addresses that begin with them.
[[nodiscard]] std::string network_of(int socket);

}  // namespace far::server
