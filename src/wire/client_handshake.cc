#include "wire/client_handshake.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

namespace far::wire {

client_handshake::client_handshake(credentials shown) : shown_(std::move(shown)) {
  hello_.tenant = shown_.tenant;
}

void client_handshake::begin(const session_id& join, std::uint32_t channel, std::uint16_t oldest) {
  shown_.random(hello_.client);
  hello_.oldest = oldest;
  hello_.join = join;
  hello_.channel = channel;
  expected_ = opcode::challenge;
  explanation_[0] = '\0';
  hello_bytes_ = encode(hello_, hello_payload_);
  put(opcode::hello, {hello_payload_.data(), hello_bytes_});
}

void client_handshake::put(opcode op, std::span<const std::byte> payload) {
  out_.set(op, payload);
  sent_bytes_ = 0;
}

client_handshake::step client_handshake::refuse(const char* why) {
  static_cast<void>(std::snprintf(explanation_.data(), explanation_.size(), "%s", why));
  return step::refused;
}

client_handshake::step client_handshake::take(const header& head, std::span<const std::byte> payload) {
  if (checksum(payload) != head.payload_checksum) return refuse("has sent an answer that arrived damaged");
  if (head.op == opcode::refuse) return take_refusal(payload);
  if (head.op == opcode::unknown && expected_ == opcode::welcome) return take_unknown(payload);
  if (head.op != expected_) return refuse("does not speak the protocol of farheapd");
  return head.op == opcode::challenge ? take_challenge(payload) : take_welcome(payload);
}

client_handshake::step client_handshake::take_refusal(std::span<const std::byte> payload) {
  const std::string reason = decode_refusal(payload);
  static_cast<void>(std::snprintf(explanation_.data(), explanation_.size(), "refuses: %s", reason.c_str()));
  const bool is_believed = hello_.oldest < 2 && joins();
  return is_believed && reason.starts_with(refusal_unknown_session) ? step::unknown_session : step::refused;
}

client_handshake::step client_handshake::take_unknown(std::span<const std::byte> payload) {
  const std::optional<unknown_session> said = decode_unknown_session(payload);
  if (!said || !joins() || version_ < 2) return refuse("does not speak the protocol of farheapd");
  if (!shown_.token.empty() && !equal_digests(proof_of(side::absent), said->proof)) {
    return refuse("cannot prove that it knows the token; is it the right server?");
  }
  static_cast<void>(std::snprintf(explanation_.data(), explanation_.size(), "refuses: %s", said->reason.c_str()));
  return step::unknown_session;
}

digest client_handshake::proof_of(side prover) const {
  return prove(prover, shown_.token, {hello_payload_.data(), hello_bytes_},
               {challenge_payload_.data(), challenge_bytes_}, channel_);
}

client_handshake::step client_handshake::take_challenge(std::span<const std::byte> payload) {
  const std::optional<challenge> asked = decode_challenge(payload);
  // A version that we do not speak does not decode.
  if (!asked) {
    return refuse(
        "has sent a malformed challenge, or speaks another version; use the same release of farheap on both "
        "sides");
  }
  const bool has_token = !shown_.token.empty();
  if (asked->token_wanted && !has_token) return refuse("wants a token; give it with token-file=FILE");
  if (!asked->token_wanted && has_token) {
    return refuse(
        "does not know the token, and might be anybody's; start it with --token-file, or leave out "
        "token-file=");
  }
  if (asked->version < hello_.oldest) return refuse("speaks an older version than when the session was opened");
  std::copy(payload.begin(), payload.end(), challenge_payload_.begin());
  challenge_bytes_ = payload.size();
  identity_ = asked->identity;
  version_ = asked->version;
  expected_ = opcode::welcome;
  put(opcode::proof, has_token ? proof_of(side::client) : digest{});
  return step::more;
}

client_handshake::step client_handshake::take_welcome(std::span<const std::byte> payload) {
  const std::optional<wire::welcome> said = decode_welcome(payload, version_);
  if (!said) return refuse("has sent a malformed welcome");
  if (!shown_.token.empty() && !equal_digests(proof_of(side::server), said->proof)) {
    return refuse("cannot prove that it knows the token; is it the right server?");
  }
  welcome_ = *said;
  if (!joins() || said->session == hello_.join) return step::done;
  static_cast<void>(refuse("has opened another session than the one to join"));
  return step::unknown_session;
}

}  // namespace far::wire
