#include "server/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <optional>

namespace far::server {
namespace {

constexpr int backlog = 1024;

const sockaddr_in& as_v4(const address& from) {
  return reinterpret_cast<const sockaddr_in&>(from.raw);
}

const sockaddr_in6& as_v6(const address& from) {
  return reinterpret_cast<const sockaddr_in6&>(from.raw);
}

bool parse_host(const std::string& host, std::uint16_t port, address* into) {
  auto& v4 = reinterpret_cast<sockaddr_in&>(into->raw);
  if (inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    into->raw_bytes = sizeof v4;
    return true;
  }
  auto& v6 = reinterpret_cast<sockaddr_in6&>(into->raw);
  if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    into->raw_bytes = sizeof v6;
    return true;
  }
  return false;
}

constexpr const char* unknown_address = "an unknown address";

std::optional<address> address_of_peer(int socket) {
  address other;
  other.raw_bytes = sizeof other.raw;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&other.raw), &other.raw_bytes) != 0) return std::nullopt;
  if (other.raw.ss_family != AF_INET && other.raw.ss_family != AF_INET6) return std::nullopt;
  return other;
}

}  // namespace

bool address::is_loopback() const {
  if (raw.ss_family == AF_INET) return ntohl(as_v4(*this).sin_addr.s_addr) >> 24 == 127;
  const in6_addr& bytes = as_v6(*this).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&bytes)) return bytes.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&bytes);
}

std::string address::host() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool v4 = raw.ss_family == AF_INET;
  const void* const bytes = v4 ? static_cast<const void*>(&as_v4(*this).sin_addr) : &as_v6(*this).sin6_addr;
  inet_ntop(raw.ss_family, bytes, text.data(), text.size());
  return text.data();
}

std::uint16_t address::port() const {
  return ntohs(raw.ss_family == AF_INET ? as_v4(*this).sin_port : as_v6(*this).sin6_port);
}

std::string address::network() const {
  if (raw.ss_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&as_v6(*this).sin6_addr)) return host();
  address prefix = *this;
  auto& bytes = reinterpret_cast<sockaddr_in6&>(prefix.raw).sin6_addr.s6_addr;
  std::fill(std::begin(bytes) + 8, std::end(bytes), std::uint8_t{0});
  return prefix.host() + "/64";
}

std::string address::text() const {
  const std::string name = raw.ss_family == AF_INET ? host() : "[" + host() + "]";
  return name + ":" + std::to_string(port());
}

result<address> parse_address(const std::string& text) {
  const error wrong{"'" + text + "' is not an address and a port; write for example 127.0.0.1:7070 or [::1]:7070",
                    EINVAL};
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return wrong;
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != host.npos) {
    return wrong;
  }
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data() + colon + 1, end, port);
  if (failure != std::errc{} || rest != end) return wrong;
  address parsed;
  if (!parse_host(host, port, &parsed)) return wrong;
  return parsed;
}

// SO_REUSEADDR lets a restarted server listen at once, beside connections of its predecessor that have not timed out.
// The address is read back because port 0 lets the kernel choose.
result<int> listen_at(address* at) {
  const int listener = socket(at->raw.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  const auto* const raw = reinterpret_cast<const sockaddr*>(&at->raw);
  const bool listening = listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                         bind(listener, raw, at->raw_bytes) == 0 && listen(listener, backlog) == 0;
  if (!listening) {
    const int code = errno;
    if (listener >= 0) close(listener);
    const char* const advice = code == EADDRINUSE ? "; another program has it: choose another port, or end that one"
                               : code == EADDRNOTAVAIL ? "; it is not an address of this machine"
                               : code == EACCES        ? "; ports below 1024 are for root: choose a higher one"
                                                       : "";
    return error{"cannot listen on " + at->text() + ": " + std::strerror(code) + advice, code};
  }
  at->raw_bytes = sizeof at->raw;
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&at->raw), &at->raw_bytes) != 0) {
    const int code = errno;
    close(listener);
    return error{"cannot listen on " + at->text() + ": " + std::strerror(code), code};
  }
  return listener;
}

std::string peer_of(int socket) {
  const std::optional<address> peer = address_of_peer(socket);
  return peer ? peer->text() : unknown_address;
}

std::string network_of(int socket) {
  const std::optional<address> peer = address_of_peer(socket);
  return peer ? peer->network() : unknown_address;
}

}  // namespace far::server
