// A plain TCP connection.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/tcp/byte_stream.h"
#include "backend/tcp/tcp_uri.h"
#include "base/result.h"

namespace far::backend {

struct socket_address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

// "127.0.0.1", "::1". Has no bytes when it is anything else.
[[nodiscard]] socket_address address_in_digits(std::string_view host, std::uint16_t port);

// The addresses of a server, the preferred one first. Blocks while names are looked up: for opening only.
[[nodiscard]] result<std::vector<socket_address>> resolve(const tcp_endpoint& server);

// Connecting again tries the next of the server's addresses. The descriptor is an epoll descriptor with the socket in
// it, so that nobody who watches it needs to know of a new socket.
class socket_stream final : public byte_stream {
 public:
  // Requires: `addresses` is not empty. Errors: no descriptor left.
  [[nodiscard]] static result<std::unique_ptr<byte_stream>> create(std::vector<socket_address> addresses);
  ~socket_stream() override;
  socket_stream(const socket_stream&) = delete;
  socket_stream& operator=(const socket_stream&) = delete;

  [[nodiscard]] std::size_t address() const override { return address_; }
  void use_address(std::size_t number) override { next_address_ = number % addresses_.size(); }
  void use_server(std::string_view host, std::uint16_t port, std::string_view name) override;
  [[nodiscard]] int connect() override;
  [[nodiscard]] int finish_connecting() override;
  [[nodiscard]] std::ptrdiff_t try_send(std::span<const iovec> chunks) override;
  [[nodiscard]] std::ptrdiff_t try_receive(std::span<const iovec> into) override;
  void close() override;
  void abandon() override;
  [[nodiscard]] int descriptor() const override { return watch_; }
  void watch_also(int descriptor) override;

 private:
  socket_stream(std::vector<socket_address> addresses, int watch);
  void watch_for_room(bool wanted);

  std::vector<socket_address> addresses_;
  std::size_t address_ = 0;
  std::size_t next_address_ = 0;
  int watch_ = -1;
  int socket_ = -1;
  bool connecting_ = false;
  bool watching_for_room_ = false;
};

}  // namespace far::backend
