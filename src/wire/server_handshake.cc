#include "wire/server_handshake.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

namespace far::wire {

server_handshake::step server_handshake::take(const header& head, std::span<const std::byte> payload) {
  if (head.op != expected_ || checksum(payload) != head.payload_checksum) return step::malformed;
  if (head.op == opcode::hello) return take_hello(payload);
  return head.op == opcode::proof ? take_proof(payload) : step::malformed;
}

server_handshake::step server_handshake::take_hello(std::span<const std::byte> payload) {
  std::optional<hello> said = decode_hello(payload);
  if (!said) return step::malformed;
  if (said->oldest > newest_version || said->newest < oldest_version) {
    refuse("version: this server speaks versions " + std::to_string(oldest_version) + " to " +
           std::to_string(newest_version) + " of the protocol; use the same release of farheap on both sides");
    return step::refused;
  }
  hello_ = std::move(*said);
  hello_bytes_ = payload.size();
  std::copy(payload.begin(), payload.end(), hello_payload_.begin());
  return step::greeted;
}

void server_handshake::challenge(bool token_wanted, std::vector<std::string> tokens, const server_id& identity) {
  FAR_CHECK(tokens.size() <= most_tokens, "no more tokens than are looked at");
  token_wanted_ = token_wanted;
  tokens_ = std::move(tokens);
  version_ = std::min(hello_.newest, newest_version);
  wire::challenge asked{.version = version_, .token_wanted = token_wanted, .server = {}, .identity = identity};
  random_(asked.server);
  std::array<std::byte, maximum_handshake_bytes> payload{};
  const std::span<const std::byte> encoded = std::span(payload).first(encode(asked, payload));
  std::copy(encoded.begin(), encoded.end(), challenge_payload_.begin());
  challenge_bytes_ = encoded.size();
  out_.set(opcode::challenge, encoded);
  expected_ = opcode::proof;
}

server_handshake::step server_handshake::take_proof(std::span<const std::byte> payload) {
  digest shown{};
  if (payload.size() != shown.size()) return step::malformed;
  expected_ = opcode::welcome;  // nothing more of the client's
  if (!token_wanted_) return step::proven;
  std::copy(payload.begin(), payload.end(), shown.begin());
  // For a tenant that is unknown or has one token, compares with a token that nobody has: it takes as long, and fails
  // alike.
  std::array<char, 32> nobody_has{};
  random_(std::as_writable_bytes(std::span(nobody_has)));
  const std::span<const std::byte> greeting(hello_payload_.data(), hello_bytes_);
  const std::span<const std::byte> asked(challenge_payload_.data(), challenge_bytes_);
  std::string_view known;
  for (std::size_t i = 0; i < most_tokens; ++i) {
    const std::string_view secret =
        i < tokens_.size() ? tokens_[i] : std::string_view(nobody_has.data(), nobody_has.size());
    const bool fits = equal_digests(shown, prove(side::client, secret, greeting, asked, channel_));
    if (fits && i < tokens_.size()) known = secret;
  }
  if (!known.empty()) {
    proof_ = prove(side::server, known, greeting, asked, channel_);
    absent_proof_ = prove(side::absent, known, greeting, asked, channel_);
    return step::proven;
  }
  refuse("token: it is not the one of this tenant, or the server knows no such tenant");
  return step::refused;
}

void server_handshake::welcome(wire::welcome answer) {
  answer.proof = proof_;
  std::array<std::byte, maximum_handshake_bytes> payload{};
  out_.set(opcode::welcome, std::span(payload).first(encode(answer, payload, version_)));
}

void server_handshake::deny_session(std::string_view why) {
  if (version_ < 2) return refuse(why);
  std::array<std::byte, maximum_handshake_bytes> payload{};
  const unknown_session answer{.proof = absent_proof_, .reason = std::string(why)};
  out_.set(opcode::unknown, std::span(payload).first(encode(answer, payload)));
}

void server_handshake::refuse(std::string_view why) {
  std::array<std::byte, maximum_handshake_bytes> payload{};
  out_.set(opcode::refuse, std::span(payload).first(encode_refusal(why, payload)));
}

}  // namespace far::wire
