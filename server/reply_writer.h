// The messages to one client: encoded here, sent by the driver of the connection.
//
// Requests are handled while there is room for the longest reply, so that each can be answered at once. The writer also
// knows since when the client has left its replies unread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "server/byte_buffer.h"
#include "server/counters.h"
#include "server/turn.h"
#include "wire/message.h"

namespace far::server {

class reply_writer {
 public:
  // Requires: both outlive the writer. Payloads are charged to `share`.
  reply_writer(loop_counters& counters, turn& share);

  // Room for the payload of the next message. Requires: has_room().
  [[nodiscard]] std::span<std::byte> payload_space() { return out_.space().subspan(wire::header_bytes); }
  [[nodiscard]] bool has_room() const;
  // Completes a message whose payload stands in payload_space(). Requires: has_room().
  void append(wire::header head, std::size_t payload_bytes);
  void reply(const wire::header& request, wire::status result, std::size_t payload_bytes = 0, bool is_packed = false);
  // An encoded message. Requires: has_room().
  void append_encoded(std::span<const std::byte> message);

  // The bytes to be sent. They stay in place until sent().
  [[nodiscard]] std::span<const std::byte> to_send() const { return out_.filled(); }
  [[nodiscard]] bool empty() const { return out_.empty(); }
  void sent(std::size_t bytes, std::uint64_t now_ns);

  // Replies are in the buffer: starts the client's time limit for reading them, unless it is running.
  void note_waiting(std::uint64_t now_ns);
  // The time since which the client has read too little of its replies; turn::never: there are none to read.
  [[nodiscard]] std::uint64_t unread_since_ns() const { return unread_since_ns_; }

  // Gives the memory of an idle buffer back.
  void release_memory();

  // Since the start; the difference of two calls is how many were answered between them.
  [[nodiscard]] std::uint64_t answered() const { return answered_; }

 private:
  loop_counters& counters_;
  turn& turn_;
  byte_buffer out_;
  std::uint64_t answered_ = 0;
  std::uint64_t unread_since_ns_ = turn::never;
  std::uint64_t read_bytes_ = 0;  // how many of them were read since then
};

}  // namespace far::server
