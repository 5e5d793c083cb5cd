#include "socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace cached {

descriptor::~descriptor() {
  if (number_ >= 0) close(number_);
}

descriptor listen_at(const std::string& address, std::uint16_t& port) {
  addrinfo wanted{};
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) {
    throw std::runtime_error(fmt::format("--listen: '{}' is no IP address; give one of this machine's", address));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> release(found, freeaddrinfo);
  descriptor created(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (created.get() < 0 || setsockopt(created.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(created.get(), found->ai_addr, found->ai_addrlen) != 0 || listen(created.get(), 1024) != 0) {
    throw std::runtime_error(fmt::format("cannot listen at {} port {}: {}; choose another --listen or --port", address,
                                         port, std::strerror(errno)));
  }
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  getsockname(created.get(), reinterpret_cast<sockaddr*>(&bound), &bytes);
  port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  return created;
}

}  // namespace cached
