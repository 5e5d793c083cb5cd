// The server's side of the handshake, over any transport: messages in, messages and an outcome out.
//
//     take(hello) -> greeted -> challenge() -> take(proof) -> proven -> welcome()
//
// In between, the server decides whether this peer is admitted at all, and which session it gets. It may refuse() after
// any of them; malformed and refused are the end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/handshake.h"
#include "wire/message.h"

namespace far::wire {

class server_handshake {
 public:
  // While a token is replaced, the old one and the new one are valid.
  static constexpr std::size_t most_tokens = 2;

  enum class step : std::uint8_t {
    malformed,  // an unexpected message: the connection ends without a reply
    refused,    // to_send() holds the refusal; then the connection ends
    greeted,    // said() is known: challenge() or refuse() next
    proven,     // the client knows the token: welcome() or refuse() next
  };

  // `random`: for nonces; a simulation passes its own.
  explicit server_handshake(void (*random)(std::span<std::byte>) = fill_random) : random_(random) {}

  // The TLS connection that carries the handshake. Call it before the first take().
  void bind(const channel_binding& channel) { channel_ = channel; }

  // Takes the next message of the client.
  [[nodiscard]] step take(const header& head, std::span<const std::byte> payload);

  // The request of the client; after greeted.
  [[nodiscard]] const hello& said() const { return hello_; }
  // The chosen one; after greeted.
  [[nodiscard]] std::uint16_t version() const { return version_; }
  [[nodiscard]] bool joins() const { return hello_.join != session_id{}; }

  // Continues after greeted. `tokens`: the tenant's, of which the client has to know one; at most most_tokens; empty
  // when nobody knows such a tenant.
  void challenge(bool token_wanted, std::vector<std::string> tokens, const server_id& identity = {});
  // Continues after proven. Fills in the proof.
  void welcome(wire::welcome answer);
  // Ends it.
  void refuse(std::string_view why);
  // Ends it after proven: there is no such session (any more). `why` begins with refusal_unknown_session.
  void deny_session(std::string_view why);

  // The whole message that one of the above has made.
  [[nodiscard]] std::span<const std::byte> to_send() const { return out_.bytes(); }

 private:
  [[nodiscard]] step take_hello(std::span<const std::byte> payload);
  [[nodiscard]] step take_proof(std::span<const std::byte> payload);

  void (*random_)(std::span<std::byte>);
  std::optional<channel_binding> channel_;
  opcode expected_ = opcode::hello;
  bool token_wanted_ = false;
  std::vector<std::string> tokens_;
  hello hello_;
  std::array<std::byte, maximum_handshake_bytes> hello_payload_{};
  std::size_t hello_bytes_ = 0;
  std::array<std::byte, challenge_bytes> challenge_payload_{};
  std::size_t challenge_bytes_ = 0;
  std::uint16_t version_ = 0;
  digest proof_{};
  digest absent_proof_{};
  handshake_message out_;
};

}  // namespace far::wire
