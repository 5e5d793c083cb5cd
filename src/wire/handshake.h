// The handshake: both sides agree on a version and prove that they know the tenant's token, without sending it.
//
//     client                                          server
//     hello: versions, client nonce, tenant  ------->
//                                            <------- challenge: version, server nonce, token wanted?
//     proof: 32 bytes, prove(client)  ------------>
//                                            <------- welcome: prove(server), session
//
// A proof is always sent; it is all zeros when no token is wanted. Proofs cover the payloads of hello and challenge, so
// a proof is good for one connection only and a version cannot be talked down. A client that was given a token refuses
// a server that cannot prove it. Over TLS they also cover what identifies the encrypted channel, so that nobody who
// ends the encryption in between can pass them on. Without TLS the connection is authenticated at its start, not
// encrypted.
//
// Here are the messages and the proofs. The two sides are client_handshake.h and server_handshake.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/message.h"

namespace far::wire {

using nonce = std::array<std::byte, 32>;
using digest = std::array<std::byte, 32>;
using session_id = std::array<std::byte, 16>;       // all zero: a new session, please
using channel_binding = std::array<std::byte, 32>;  // of a TLS connection, the same at both ends (tls_stream::binding)
using server_id = std::array<std::byte, 16>;        // of a server's process; all zero: it has not said (version 1)

inline constexpr std::size_t maximum_tenant_bytes = 64;
inline constexpr std::size_t maximum_refusal_bytes = 256;
inline constexpr std::size_t minimum_token_bytes = 16;
inline constexpr std::size_t maximum_token_bytes = 1024;
inline constexpr std::size_t proof_bytes = sizeof(digest);
inline constexpr std::size_t first_challenge_bytes = 40;  // of version 1
inline constexpr std::size_t challenge_bytes = 56;
inline constexpr std::size_t first_welcome_bytes = 64;
inline constexpr std::size_t welcome_bytes = 72;

// Channel numbers below this are those of the process that opened the session. A child draws one above it, so that it
// fences nobody off, and outlives the end that its parent announces.
inline constexpr std::uint32_t first_child_channel = std::uint32_t{1} << 31;

// How a refusal begins when the session to join does not exist (any more). Everything else in it is for people only.
inline constexpr std::string_view refusal_unknown_session = "unknown session";

// A tenant's name: letters, digits, '-', '_' and '.', 1 to maximum_tenant_bytes of them.
[[nodiscard]] bool is_tenant_name(std::string_view name);

// A decoder ignores what follows the tenant: a later version may add fields there, and the proof covers them.
struct hello {
  std::uint16_t oldest = oldest_version;
  std::uint16_t newest = newest_version;
  nonce client{};
  session_id join{};          // the session whose slots this connection wants to use
  std::uint32_t channel = 0;  // of that session; a new connection of the same number ends the old one (a fence)
  std::string tenant = "default";
};

struct challenge {
  std::uint16_t version = 0;
  bool token_wanted = false;
  nonce server{};
  server_id identity{};  // from version 2 on
};

struct welcome {
  digest proof{};  // all zero when no token is wanted
  session_id session{};
  std::uint64_t quota_slots = 0;
  std::uint32_t grace_ms = 0;             // how long slots live after the session's last connection ended
  std::uint32_t maximum_outstanding = 0;  // requests that the server takes before it stops reading from us
  std::uint64_t lease_ms = 0;             // as grace_ms, while nobody needs the memory. Version 1: the grace period
};

// The session to join is gone. With the token, the side that says so has proved that it knows it.
struct unknown_session {
  digest proof{};
  std::string reason;  // for people
};

// Each returns the payload's length. Requires: `to` holds maximum_handshake_bytes.
inline constexpr std::size_t maximum_handshake_bytes = 512;
std::size_t encode(const hello& from, std::span<std::byte> to);
std::size_t encode(const challenge& from, std::span<std::byte> to);
std::size_t encode(const welcome& from, std::span<std::byte> to, std::uint16_t version = newest_version);
std::size_t encode(const unknown_session& from, std::span<std::byte> to);
std::size_t encode_refusal(std::string_view why, std::span<std::byte> to);

[[nodiscard]] std::optional<hello> decode_hello(std::span<const std::byte> payload);
[[nodiscard]] std::optional<challenge> decode_challenge(std::span<const std::byte> payload);
[[nodiscard]] std::optional<welcome> decode_welcome(std::span<const std::byte> payload,
                                                    std::uint16_t version = newest_version);
[[nodiscard]] std::optional<unknown_session> decode_unknown_session(std::span<const std::byte> payload);
// Printable, for any bytes of the peer.
[[nodiscard]] std::string decode_refusal(std::span<const std::byte> payload);

// One message of the handshake, as it is sent.
class handshake_message {
 public:
  // Requires: the payload is no longer than maximum_handshake_bytes.
  void set(opcode op, std::span<const std::byte> payload);
  [[nodiscard]] std::span<const std::byte> bytes() const { return {bytes_.data(), length_}; }

 private:
  std::array<std::byte, header_bytes + maximum_handshake_bytes> bytes_{};
  std::size_t length_ = 0;
};

// A message that came as one packet. Nothing: it is none, or its length is not the one that its header names.
struct packed_message {
  header head;
  std::span<const std::byte> payload;
};
inline constexpr std::size_t maximum_packet_bytes = header_bytes + maximum_handshake_bytes;
[[nodiscard]] std::optional<packed_message> unpack_message(std::span<const std::byte> packet);

// absent: the server's, when it does not know the session.
enum class side : std::uint8_t { client, server, absent };

// The proof of one side: HMAC-SHA256(token, label of the side, hello, challenge), when the challenge chooses version 4
// or later also of `channel`, which is nothing without TLS. Compare with equal_digests only.
[[nodiscard]] digest prove(side prover, std::string_view token, std::span<const std::byte> hello_payload,
                           std::span<const std::byte> challenge_payload,
                           const std::optional<channel_binding>& channel = std::nullopt);

// Takes the same time for all differences.
[[nodiscard]] bool equal_digests(const digest& a, const digest& b);

// Unpredictable bytes from the kernel.
void fill_random(std::span<std::byte> to);

// The token in a file of mode 0600 (or stricter): its first line, minimum_token_bytes to maximum_token_bytes long.
// Errors say what to do; none of them holds the token.
[[nodiscard]] result<std::string> read_token_file(const std::string& path);

// The same for other secrets. Its first line has `least_bytes` to maximum_token_bytes.
struct secret_file_rules {
  std::string_view secret;  // for messages: "password file"
  std::size_t least_bytes = 1;
  std::string_view if_too_short;
};
[[nodiscard]] result<std::string> read_secret_file(const secret_file_rules& rules, const std::string& path);

}  // namespace far::wire
