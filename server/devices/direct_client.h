// In a device's process: the connection of its client that the server has handed over (direct.h). Messages of the wire
// format come in, of which only operations of the device are understood.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "server/devices/direct.h"
#include "wire/device.h"
#include "wire/message.h"

namespace far::server {

class direct_client {
 public:
  // Owns the socket. `space` has room for the longest message, and is the caller's again while is_between().
  direct_client(int socket, const handover& agreed, std::span<std::byte> space);
  ~direct_client();
  direct_client(const direct_client&) = delete;
  direct_client& operator=(const direct_client&) = delete;

  [[nodiscard]] int socket() const { return socket_; }
  // No part of a message has come.
  [[nodiscard]] bool is_between() const { return held_ == 0; }

  enum class step : std::uint8_t {
    nothing,  // no whole message is here yet
    asked,    // asked() is to be answered
    over,     // the connection ends: the client has closed it, or has broken the protocol
  };
  // Takes what has come. Never waits.
  [[nodiscard]] step receive();
  // Requires: receive() said so. Valid until answer().
  [[nodiscard]] const wire::device_request& asked() const { return asked_; }

  // Sends as much of a reply as the socket takes now; send_more() goes on when it takes more. False: the connection is
  // broken. Requires: the reply stays where it is until all is sent.
  [[nodiscard]] bool greet();
  [[nodiscard]] bool answer(const wire::device_reply& said);
  [[nodiscard]] bool is_sent() const { return left_[0].empty() && left_[1].empty(); }
  [[nodiscard]] bool send_more();

 private:
  [[nodiscard]] step understand();
  [[nodiscard]] bool send(std::uint64_t cookie, const wire::device_reply& said);

  const int socket_;
  const handover agreed_;
  const std::span<std::byte> space_;
  std::size_t held_ = 0;     // bytes in it
  std::size_t message_ = 0;  // the length of the one that is to be answered
  std::uint64_t cookie_ = 0;
  wire::device_request asked_;
  std::array<std::byte, wire::header_bytes + wire::device_reply_bytes> head_{};
  std::array<std::span<const std::byte>, 2> left_{};  // to be sent
};

}  // namespace far::server
