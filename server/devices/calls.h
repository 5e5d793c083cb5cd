// Calls of devices as one connection makes them: messages in, replies out, and the session's quota in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "server/devices/host.h"
#include "server/store.h"
#include "wire/device.h"

namespace far::server {

class device_calls {
 public:
  explicit device_calls(std::shared_ptr<device_host> host) : host_(std::move(host)) {}

  // Whether the server has plugins.
  [[nodiscard]] bool exist() const { return host_ != nullptr; }

  struct progress {
    std::uint64_t retry_at_ns = 0;  // not 0: call again then, with the same arguments
    wire::status result = wire::status::ok;
    std::size_t reply_bytes = 0;
  };
  // Requires: exist(). `into` has room for a whole payload. `arguments` come from the client and may be anything.
  [[nodiscard]] progress go_on(session& caller, std::span<const std::byte> arguments, std::uint64_t now_ns,
                               std::span<std::byte> into);

  // Whether the connection may go to the process of a device that these arguments name for that.
  [[nodiscard]] bool may_hand_over(const session& caller, const wire::device_request& asked) const;
  // Gives it a copy of the socket. `cookie`: of the request, which the process answers.
  [[nodiscard]] bool hand_over(const session& caller, std::uint64_t device, int socket, std::uint64_t cookie) const;

  [[nodiscard]] bool is_waiting() const { return waiting_since_ns_ != 0; }
  // The connection is gone. Its call ends by itself, and waits for the next connection that asks for it.
  void abandon() { waiting_since_ns_ = 0; }

 private:
  [[nodiscard]] std::optional<std::size_t> construct(session& caller, const wire::device_request& asked,
                                                     std::span<const std::byte> encoded, std::uint64_t now_ns,
                                                     std::span<std::byte> into);

  const std::shared_ptr<device_host> host_;
  std::uint64_t waiting_since_ns_ = 0;
};

}  // namespace far::server
