// A plain TCP connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "backend/tcp/byte_stream.h"
#include "backend/tcp/server_addresses.h"
#include "base/result.h"

namespace far::backend {

// Connecting again tries the next of the server's addresses. The descriptor is an epoll descriptor with the socket in
// it, so that nobody who watches it needs to know of a new socket.
class socket_stream final : public byte_stream {
 public:
  // Errors: no descriptor left.
  [[nodiscard]] static result<std::unique_ptr<byte_stream>> create(std::shared_ptr<const server_addresses> addresses);
  ~socket_stream() override;
  socket_stream(const socket_stream&) = delete;
  socket_stream& operator=(const socket_stream&) = delete;

  [[nodiscard]] std::size_t address() const override { return address_; }
  void use_address(std::size_t number) override { next_address_ = number; }
  [[nodiscard]] std::size_t address_after(std::size_t number) const override { return addresses_->after(number); }
  void use_server(std::string_view host, std::uint16_t port, std::string_view name) override;
  [[nodiscard]] int connect() override;
  [[nodiscard]] int finish_connecting() override;
  [[nodiscard]] std::ptrdiff_t try_send(std::span<const iovec> chunks) override;
  [[nodiscard]] std::ptrdiff_t try_receive(std::span<const iovec> into) override;
  void close() override;
  void abandon() override;
  [[nodiscard]] int descriptor() const override { return watch_; }
  void watch_also(int descriptor) override;
  // Without the epoll descriptor, through which waking up takes 0.4 us longer. For a second at most.
  void wait(std::uint64_t timeout_ns) override;

 private:
  socket_stream(std::shared_ptr<const server_addresses> addresses, int watch);
  void watch_for_room(bool wanted);

  const std::shared_ptr<const server_addresses> addresses_;
  socket_address moved_to_;  // in place of them, once use_server() has been called
  std::size_t address_ = 0;
  std::size_t next_address_ = 0;
  int watch_ = -1;
  int socket_ = -1;
  bool connecting_ = false;
  bool watching_for_room_ = false;
};

}  // namespace far::backend
