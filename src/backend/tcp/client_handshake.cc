#include "backend/tcp/client_handshake.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace far::backend {

client_handshake::client_handshake(const tcp_credentials& shown) : shown_(shown) {
  hello_.tenant = shown.tenant;
}

void client_handshake::begin(const wire::session_id& join, std::uint32_t channel) {
  shown_.random(hello_.client);
  hello_.join = join;
  hello_.channel = channel;
  expected_ = wire::opcode::challenge;
  explanation_[0] = '\0';
  hello_bytes_ = wire::encode(hello_, hello_payload_);
  put(wire::opcode::hello, {hello_payload_.data(), hello_bytes_});
}

void client_handshake::put(wire::opcode op, std::span<const std::byte> payload) {
  const wire::header head{.op = op,
                          .payload_bytes = static_cast<std::uint32_t>(payload.size()),
                          .payload_checksum = wire::checksum(payload)};
  wire::encode(head, std::span<std::byte, wire::header_bytes>(out_.data(), wire::header_bytes));
  std::memcpy(out_.data() + wire::header_bytes, payload.data(), payload.size());
  out_begin_ = 0;
  out_end_ = wire::header_bytes + payload.size();
}

client_handshake::step client_handshake::refuse(const char* why) {
  static_cast<void>(std::snprintf(explanation_.data(), explanation_.size(), "%s", why));
  return step::refused;
}

client_handshake::step client_handshake::take(const wire::header& head, std::span<const std::byte> payload) {
  if (wire::checksum(payload) != head.payload_checksum) return refuse("its answer arrived damaged");
  if (head.op == wire::opcode::refuse && !head.is_reply) return take_refusal(payload);
  if (head.op != expected_ || head.is_reply) return refuse("it does not speak the protocol of farheapd");
  return head.op == wire::opcode::challenge ? take_challenge(payload) : take_welcome(payload);
}

client_handshake::step client_handshake::take_refusal(std::span<const std::byte> payload) {
  const std::string reason = wire::decode_refusal(payload);
  const bool joining = hello_.join != wire::session_id{};
  static_cast<void>(std::snprintf(explanation_.data(), explanation_.size(), "it refuses: %s", reason.c_str()));
  return joining && reason.starts_with(wire::refusal_unknown_session) ? step::unknown_session : step::refused;
}

client_handshake::step client_handshake::take_challenge(std::span<const std::byte> payload) {
  const std::optional<wire::challenge> asked = wire::decode_challenge(payload);
  // A version that we do not speak does not decode.
  if (!asked || payload.size() > challenge_payload_.size()) {
    return refuse("its challenge is malformed, or of another version; use the same release of farheap on both sides");
  }
  const bool has_token = !shown_.token.empty();
  if (asked->token_wanted && !has_token) return refuse("it wants a token; give it with token-file=FILE");
  if (!asked->token_wanted && has_token) {
    return refuse(
        "it does not know the token, and might be anybody's; start it with --token-file, or leave out "
        "token-file=");
  }
  challenge_bytes_ = payload.size();
  std::copy(payload.begin(), payload.end(), challenge_payload_.begin());
  wire::digest proof{};
  if (has_token) {
    proof = wire::prove(wire::side::client, shown_.token, {hello_payload_.data(), hello_bytes_},
                        {challenge_payload_.data(), challenge_bytes_});
  }
  expected_ = wire::opcode::welcome;
  put(wire::opcode::proof, proof);
  return step::more;
}

client_handshake::step client_handshake::take_welcome(std::span<const std::byte> payload) {
  const std::optional<wire::welcome> said = wire::decode_welcome(payload);
  if (!said) return refuse("its welcome is malformed");
  if (!shown_.token.empty()) {
    const wire::digest right = wire::prove(wire::side::server, shown_.token, {hello_payload_.data(), hello_bytes_},
                                           {challenge_payload_.data(), challenge_bytes_});
    if (!wire::equal_digests(right, said->proof)) {
      return refuse("it cannot prove that it knows the token; is it the right server?");
    }
  }
  if (said->session == wire::session_id{}) return refuse("its welcome names no session");
  welcome_ = *said;
  const bool joining = hello_.join != wire::session_id{};
  return joining && said->session != hello_.join ? step::unknown_session : step::done;
}

}  // namespace far::backend
