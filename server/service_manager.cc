#include "server/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace far::server {

// By hand and not by libsystemd, which would be a dependency of every server for a datagram. It never blocks: a service
// manager that does not read must not stop the server.
result<void> tell_service_manager(std::string_view state) {
  const char* const name = std::getenv("NOTIFY_SOCKET");
  if (name == nullptr || *name == '\0') return {};
  const std::size_t length = std::strlen(name);
  const auto failure = [&](int code) {
    return error{std::string("the service manager cannot be told (NOTIFY_SOCKET ") + name + "): " + std::strerror(code),
                 code};
  };
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (length >= sizeof to.sun_path) return failure(ENAMETOOLONG);
  std::memcpy(to.sun_path, name, length);
  if (*name == '@') to.sun_path[0] = '\0';  // an abstract socket, which has no file
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return failure(errno);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  const ssize_t sent = sendto(socket, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                              reinterpret_cast<const sockaddr*>(&to), bytes);
  const int code = errno;
  close(socket);
  if (sent != static_cast<ssize_t>(state.size())) return failure(code);
  return {};
}

}  // namespace far::server
