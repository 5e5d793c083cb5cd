#include "backend/tcp/server_addresses.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "backend/tcp/name_lookup.h"

namespace far::backend {
namespace {

std::atomic<bool> is_program_far{false};

}  // namespace

bool socket_address::operator==(const socket_address& other) const {
  return bytes == other.bytes && std::memcmp(&storage, &other.storage, bytes) == 0;
}

void note_far_program() {
  is_program_far.store(true);
}

result<std::vector<socket_address>> resolve(const tcp_endpoint& server) {
  if (const socket_address only = address_in_digits(server.host, server.port); only.bytes > 0) return std::vector{only};
  if (is_program_far.load()) return look_up(server);
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int failed = getaddrinfo(server.host.c_str(), std::to_string(server.port).c_str(), &wanted, &list);
  if (failed != 0) {
    return error{"memory server " + server.text() + ": its name cannot be resolved (" + gai_strerror(failed) +
                     "); check the name, or write its address",
                 EHOSTUNREACH};
  }
  std::vector<socket_address> addresses;
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
    socket_address added;
    if (address->ai_addrlen > sizeof added.storage) continue;
    std::memcpy(&added.storage, address->ai_addr, address->ai_addrlen);
    added.bytes = address->ai_addrlen;
    addresses.push_back(added);
  }
  freeaddrinfo(list);
  if (addresses.empty()) return error{"memory server " + server.text() + " has no address", EHOSTUNREACH};
  return addresses;
}

socket_address address_in_digits(std::string_view host, std::uint16_t port) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  socket_address found;
  if (host.size() >= text.size()) return found;
  std::copy(host.begin(), host.end(), text.begin());
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&found.storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&found.storage);
  if (inet_pton(AF_INET, text.data(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    found.bytes = sizeof *v4;
  } else if (inet_pton(AF_INET6, text.data(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    found.bytes = sizeof *v6;
  }
  return found;
}

bool server_addresses::replace(const std::vector<socket_address>& found) {
  std::vector<entry> replaced;
  {
    const lock_guard guard(lock_);
    replaced = entries_;
  }
  const std::size_t before = replaced.size();
  for (entry& known : replaced) {
    known.is_current = std::find(found.begin(), found.end(), known.address) != found.end();
  }
  for (const socket_address& address : found) {
    const auto is_it = [&](const entry& known) { return known.address == address; };
    if (std::none_of(replaced.begin(), replaced.end(), is_it)) replaced.push_back({address, true});
  }
  const bool any_new = replaced.size() > before;
  const lock_guard guard(lock_);
  entries_.swap(replaced);
  return any_new;
}

socket_address server_addresses::at(std::size_t number) const {
  const lock_guard guard(lock_);
  return number < entries_.size() ? entries_[number].address : socket_address{};
}

std::size_t server_addresses::after(std::size_t number) const {
  const lock_guard guard(lock_);
  for (std::size_t step = 1; step <= entries_.size(); ++step) {
    const std::size_t next = (number + step) % entries_.size();
    if (entries_[next].is_current) return next;
  }
  return number;
}

}  // namespace far::backend
