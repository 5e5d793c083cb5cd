#include "wire/rendezvous.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace far::wire {
namespace {

constexpr std::size_t longest_name_bytes = 64;
constexpr int waiting_connections = 128;
constexpr unsigned most_bells_at_once = 256;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return error{"the socket's path '" + path + "' is longer than " + std::to_string(sizeof address.sun_path - 1) +
                     " bytes; choose a shorter one",
                 ENAMETOOLONG};
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

error failed(const std::string& action, const std::string& path, int code) {
  return {action + " '" + path + "': " + std::strerror(code), code};
}

int open_socket() {
  // Packets keep their bounds, so nobody waits for the rest of a message.
  return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

void take_descriptors(msghdr& message, packet& into, bool& too_many) {
  std::size_t count = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t held = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < held; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      if (count < into.descriptors.size()) {
        into.descriptors[count++] = descriptor;
      } else {
        close(descriptor);
        too_many = true;
      }
    }
  }
}

}  // namespace

result<void> check_server_name(std::string_view name) {
  if (name.find('/') != std::string_view::npos) return {};
  if (!name.empty() && name.size() <= longest_name_bytes && name.front() != '.' &&
      std::all_of(name.begin(), name.end(), is_name_character)) {
    return {};
  }
  return error{
      "'" + std::string(name) +
          "' is no name of a memory server on this machine; write letters, digits, '-', '_' and '.' (shm:NAME), "
          "or the path of its socket (shm:/run/farheap/NAME.sock)",
      EINVAL};
}

std::vector<std::string> socket_paths(std::string_view name) {
  if (name.find('/') != std::string_view::npos) return {std::string(name)};
  const std::string file = "/" + std::string(name) + ".sock";
  std::vector<std::string> paths;
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') paths.push_back(std::string(runtime) + "/farheap" + file);
  paths.push_back("/run/farheap" + file);
  paths.push_back("/tmp/farheap-" + std::to_string(geteuid()) + file);
  return paths;
}

result<int> listen_at(const std::string& path, mode_t mode) {
  const result<sockaddr_un> address = address_of(path);
  if (!address) return address.error();
  const int listener = open_socket();
  if (listener < 0) return failed("cannot make a socket for", path, errno);
  // Nobody can connect between bind() and listen(), so nobody comes in before the mode is right.
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address.value()), sizeof(sockaddr_un)) != 0 ||
      chmod(path.c_str(), mode) != 0 || listen(listener, waiting_connections) != 0) {
    const int code = errno;
    close(listener);
    return failed("cannot listen at", path, code);
  }
  return listener;
}

result<int> connect_to(const std::string& path) {
  const result<sockaddr_un> address = address_of(path);
  if (!address) return address.error();
  const int connection = open_socket();
  if (connection < 0) return failed("cannot make a socket for", path, errno);
  if (connect(connection, reinterpret_cast<const sockaddr*>(&address.value()), sizeof(sockaddr_un)) != 0) {
    const int code = errno;
    close(connection);
    return failed("cannot connect to", path, code);
  }
  return connection;
}

result<peer> peer_of(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return error{std::string("cannot tell who is at the other end of a socket: ") + std::strerror(errno), errno};
  }
  return peer{credentials.uid, credentials.pid};
}

int send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(maximum_descriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    if (descriptors.size() > maximum_descriptors) return EINVAL;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  while (sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

int receive_packet(int socket, std::span<std::byte> bytes, packet& into) {
  iovec part{bytes.data(), bytes.size()};
  // Room for one more than is ever sent, so that a surplus is noticed and closed.
  alignas(cmsghdr) std::array<char, CMSG_SPACE((maximum_descriptors + 1) * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  while ((got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EWOULDBLOCK) return EAGAIN;
    if (errno != EINTR) return errno;
  }
  bool too_much = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  into = {.length_bytes = static_cast<std::size_t>(got), .descriptors = {-1, -1}};
  take_descriptors(message, into, too_much);
  if (got > 0 && !too_much) return 0;
  for (const int descriptor : into.descriptors) {
    if (descriptor >= 0) close(descriptor);
  }
  into.descriptors = {-1, -1};
  return too_much ? EMSGSIZE : ECONNRESET;
}

void ring_bell(int socket) noexcept {
  const char bell = 1;
  static_cast<void>(send(socket, &bell, sizeof bell, MSG_DONTWAIT | MSG_NOSIGNAL));
}

int answer_bells(int socket) noexcept {
  // Bounded, so that a peer that rings without end delays nobody; the rest is read next time.
  for (unsigned bells = 0; bells < most_bells_at_once; ++bells) {
    std::array<char, 2> bell{};
    // No room for descriptors: the kernel keeps what is sent along from us.
    const ssize_t got = recv(socket, bell.data(), bell.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (got == 1) continue;
    if (got > 1) return EBADMSG;
    if (got == 0) return ECONNRESET;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : ECONNRESET;
  }
  return 0;
}

}  // namespace far::wire
