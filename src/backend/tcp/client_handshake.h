// The client's part of the handshake of wire/handshake.h: messages in, messages out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "wire/handshake.h"
#include "wire/message.h"

namespace far::backend {

struct tcp_credentials {
  std::string tenant = "default";
  std::string token;                                         // empty: none. Never shown
  void (*random)(std::span<std::byte>) = wire::fill_random;  // nonces; a simulation passes its own
};

class client_handshake {
 public:
  enum class step : std::uint8_t {
    more,             // another message is expected
    done,             // welcome() holds what the server said
    refused,          // the server, or we, do not want this connection: explanation() says why
    unknown_session,  // the session to join is gone, with all its slots
  };

  // Requires: `shown` outlives this.
  explicit client_handshake(const tcp_credentials& shown);

  // Begins anew. to_send() then holds the hello.
  void begin(const wire::session_id& join, std::uint32_t channel);

  // Takes the next message of the server. to_send() may hold an answer then.
  [[nodiscard]] step take(const wire::header& head, std::span<const std::byte> payload);

  // The message to send next; empty: none.
  [[nodiscard]] std::span<const std::byte> to_send() const { return {out_.data() + out_begin_, out_end_ - out_begin_}; }
  void sent(std::size_t bytes) { out_begin_ += bytes; }

  [[nodiscard]] const wire::welcome& welcome() const { return welcome_; }
  // Printable; without the token, whatever the server has said.
  [[nodiscard]] const char* explanation() const { return explanation_.data(); }

 private:
  [[nodiscard]] step take_challenge(std::span<const std::byte> payload);
  [[nodiscard]] step take_welcome(std::span<const std::byte> payload);
  [[nodiscard]] step take_refusal(std::span<const std::byte> payload);
  [[nodiscard]] step refuse(const char* why);
  void put(wire::opcode op, std::span<const std::byte> payload);

  const tcp_credentials& shown_;
  wire::hello hello_;
  wire::opcode expected_ = wire::opcode::challenge;
  wire::welcome welcome_;
  std::array<std::byte, wire::maximum_handshake_bytes> hello_payload_{};
  std::size_t hello_bytes_ = 0;
  std::array<std::byte, wire::maximum_handshake_bytes> challenge_payload_{};
  std::size_t challenge_bytes_ = 0;
  std::array<std::byte, wire::header_bytes + wire::maximum_handshake_bytes> out_{};
  std::size_t out_begin_ = 0;
  std::size_t out_end_ = 0;
  std::array<char, 384> explanation_{};
};

}  // namespace far::backend
