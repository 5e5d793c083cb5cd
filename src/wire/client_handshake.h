// The client's side of the handshake, over any transport: messages in, messages and an outcome out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "wire/handshake.h"
#include "wire/message.h"

namespace far::wire {

struct credentials {
  std::string tenant = "default";
  std::string token;                                   // empty: none. Never shown
  void (*random)(std::span<std::byte>) = fill_random;  // nonces; a simulation passes its own
};

class client_handshake {
 public:
  enum class step : std::uint8_t {
    more,             // another message is expected
    done,             // welcome() holds what the server said
    refused,          // the server, or we, do not want this connection: explanation() says why
    unknown_session,  // the session to join is gone, with all its slots; explanation() says so, too
  };

  // From this version on, a server proves that it knows the token when it says that a session is gone.
  static constexpr std::uint16_t first_version_that_proves = 2;

  explicit client_handshake(credentials shown);

  // From the next begin() on, this is the token.
  void show(std::string token) { shown_.token = std::move(token); }

  // Begins anew. to_send() then holds the hello. `oldest`: the oldest version to offer. A session that was opened with
  // version 2 or later is joined with none before 2: from then on only a server that knows the token is believed when
  // it says that the session is gone.
  void begin(const session_id& join, std::uint32_t channel, std::uint16_t oldest = oldest_version);

  // The TLS connection that carries the handshake; none: it is not encrypted. Call it before the challenge is taken.
  void bind(const std::optional<channel_binding>& channel) { channel_ = channel; }

  // Takes the next message of the server. to_send() may hold an answer then.
  [[nodiscard]] step take(const header& head, std::span<const std::byte> payload);

  // The message to send next; empty: none.
  [[nodiscard]] std::span<const std::byte> to_send() const { return out_.bytes().subspan(sent_bytes_); }
  void sent(std::size_t bytes) { sent_bytes_ += bytes; }

  [[nodiscard]] const wire::welcome& welcome() const { return welcome_; }
  // Of the server that sent the challenge.
  [[nodiscard]] const server_id& identity() const { return identity_; }
  [[nodiscard]] std::uint16_t version() const { return version_; }
  // The reason for its end, as in "wants a token"; the transport adds the server's name. Printable; without the token,
  // for any reply of the server.
  [[nodiscard]] const char* explanation() const { return explanation_.data(); }

 private:
  [[nodiscard]] step take_challenge(std::span<const std::byte> payload);
  [[nodiscard]] step take_welcome(std::span<const std::byte> payload);
  [[nodiscard]] step take_refusal(std::span<const std::byte> payload);
  [[nodiscard]] step take_unknown(std::span<const std::byte> payload);
  [[nodiscard]] step refuse(const char* why);
  [[nodiscard]] bool joins() const { return hello_.join != session_id{}; }
  [[nodiscard]] digest proof_of(side prover) const;
  void put(opcode op, std::span<const std::byte> payload);

  credentials shown_;
  hello hello_;
  std::optional<channel_binding> channel_;
  opcode expected_ = opcode::challenge;
  wire::welcome welcome_;
  std::array<std::byte, maximum_handshake_bytes> hello_payload_{};
  std::size_t hello_bytes_ = 0;
  std::array<std::byte, challenge_bytes> challenge_payload_{};
  std::size_t challenge_bytes_ = 0;
  server_id identity_{};
  std::uint16_t version_ = 0;
  handshake_message out_;
  std::size_t sent_bytes_ = 0;
  std::array<char, 384> explanation_{};
};

}  // namespace far::wire
