// A port of the loopback interface for one server after another.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

#include "base/check.h"
#include "tests/support/loopback.h"

namespace far::testing_support {

// Nobody else is given it meanwhile: it is bound, though not listened on, so the kernel gives it neither to a socket
// that asks for any port nor to one that connects. A server that names it may listen there, because both say
// SO_REUSEADDR, as servers do.
class reserved_port {
 public:
  // Any port, or that one, which others may have reserved, too.
  explicit reserved_port(std::uint16_t number = 0) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    sockaddr_in address = loopback(number);
    socklen_t bytes = sizeof address;
    FAR_CHECK(setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                  bind(socket_, reinterpret_cast<sockaddr*>(&address), bytes) == 0 &&
                  getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &bytes) == 0,
              "a port of the loopback interface");
    number_ = ntohs(address.sin_port);
  }
  ~reserved_port() { close(socket_); }
  reserved_port(const reserved_port&) = delete;
  reserved_port& operator=(const reserved_port&) = delete;

  [[nodiscard]] std::uint16_t number() const { return number_; }

 private:
  const int socket_;
  std::uint16_t number_ = 0;
};

}  // namespace far::testing_support
