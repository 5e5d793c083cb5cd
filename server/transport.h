// How an event loop moves bytes between sockets and buffers: transfers are started, and their ends are collected in
// batches. On io_uring, or on epoll where that is not permitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"

namespace far::server {

// Belongs to one thread, but for wake().
class transport {
 public:
  enum class motion : std::uint8_t { received, sent, woken };
  struct event {
    motion kind = motion::woken;
    std::uint32_t connection = 0;
    int outcome = 0;  // bytes moved, or a negative errno; 0 bytes received: the peer has closed
  };

  virtual ~transport() = default;

  // Adds a connection, under a number below the number of connections that the transport was made for. The caller keeps
  // the socket.
  virtual void add(std::uint32_t connection, int socket) = 0;
  // Requires: no transfer of the connection is under way.
  virtual void remove(std::uint32_t connection) = 0;

  // Starts one transfer; at most one each way is under way for a connection, and the buffer stays until its event.
  virtual void receive(std::uint32_t connection, std::span<std::byte> to) = 0;
  virtual void send(std::uint32_t connection, std::span<const std::byte> from) = 0;

  // Starts the requested transfers and collects events. When there is none, sleeps until there is one or `timeout_ns`
  // has passed.
  [[nodiscard]] virtual std::size_t wait(std::span<event> into, std::uint64_t timeout_ns) = 0;

  // From any thread: the current or next wait() ends with an event `woken`.
  virtual void wake() = 0;

  [[nodiscard]] virtual const char* name() const = 0;
};

// Requires: called by the thread that will use it. Errors: not permitted, too old a kernel, no descriptors left.
[[nodiscard]] result<std::unique_ptr<transport>> make_ring_transport(std::uint32_t most_connections);
[[nodiscard]] result<std::unique_ptr<transport>> make_epoll_transport(std::uint32_t most_connections);

}  // namespace far::server
