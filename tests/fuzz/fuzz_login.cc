// Handshakes with tokens, against a client or a server that sends anything at all: nobody gets in, and nobody is
// believed, without having proved that it knows the token.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "fuzz/fuzz_target.h"
#include "wire/client_handshake.h"
#include "wire/server_handshake.h"

namespace far::fuzz {

namespace {

using wire::opcode;

const std::string old_token = "the token of before, long";
const std::string new_token = "the token of today, longer";
constexpr std::size_t most_steps = 12;

// Different every time, but not random, so that a failure replays.
void next_number(std::span<std::byte> to) {
  static std::uint64_t number = 0;
  ++number;
  std::ranges::fill(to, std::byte{0});
  std::memcpy(to.data(), &number, std::min(to.size(), sizeof number));
}

std::span<const std::byte> payload_of(std::span<const std::byte> message) {
  return message.subspan(wire::header_bytes);
}

wire::header head_of(opcode op, std::span<const std::byte> payload, bool is_damaged) {
  return {.op = op,
          .payload_bytes = static_cast<std::uint32_t>(payload.size()),
          .payload_checksum = wire::checksum(payload) ^ (is_damaged ? 1U : 0U)};
}

// A proof that may be the right one: of a token, of a side, or with a bit changed.
wire::digest some_proof(choices& from, std::span<const std::byte> hello, std::span<const std::byte> asked,
                        const std::optional<wire::channel_binding>& channel) {
  const auto kind = from.number<std::uint8_t>();
  const auto prover = static_cast<wire::side>(kind / 8 % 3);
  const std::string& token = (kind & 1) != 0 ? old_token : new_token;
  wire::digest shown = wire::prove(prover, (kind & 2) != 0 ? "a wrong one, just as long" : token, hello, asked,
                                   (kind & 4) != 0 ? std::nullopt : channel);
  if (kind >= 128) shown[kind % shown.size()] ^= std::byte{0x10};
  return shown;
}

byte_string some_hello(choices& from) {
  wire::hello said;
  said.newest = static_cast<std::uint16_t>(from.number<std::uint8_t>() % 6 + 1);
  said.tenant = (from.number<std::uint8_t>() & 1) != 0 ? "alice" : "nobody";
  said.channel = from.number<std::uint8_t>();
  byte_string payload(wire::maximum_handshake_bytes);
  payload.resize(wire::encode(said, payload));
  const std::span<const std::byte> more = from.take(from.number<std::uint8_t>() % 16);
  payload.insert(payload.end(), more.begin(), more.end());
  return payload;
}

void attack_server(choices& from) {
  using step = wire::server_handshake::step;
  wire::server_handshake server(next_number);
  std::optional<wire::channel_binding> channel;
  if ((from.number<std::uint8_t>() & 1) != 0) server.bind(*(channel = wire::channel_binding{std::byte{9}}));
  byte_string hello;
  byte_string asked;
  bool is_known = false;
  for (std::size_t steps = 0; steps < most_steps && !from.empty(); ++steps) {
    const auto kind = from.number<std::uint8_t>();
    opcode op = opcode::proof;
    byte_string payload;
    if (kind < 80) {
      op = opcode::hello;
      payload = some_hello(from);
    } else if (kind < 180) {
      const wire::digest shown = some_proof(from, hello, asked, channel);
      payload.assign(shown.begin(), shown.end());
    } else {
      op = static_cast<opcode>(from.number<std::uint8_t>());
      const std::span<const std::byte> raw = from.take(from.number<std::uint8_t>());
      payload.assign(raw.begin(), raw.end());
    }
    const tight_copy sent(payload);
    const step got = server.take(head_of(op, payload, kind == 255), sent.all());
    if (got == step::malformed || got == step::refused) return;
    if (got == step::greeted) {
      FUZZ_EXPECT(op == opcode::hello && asked.empty());
      hello = payload;
      is_known = server.said().tenant == "alice";
      server.challenge(true, is_known ? std::vector{old_token, new_token} : std::vector<std::string>{});
      const std::span<const std::byte> challenge = payload_of(server.to_send());
      asked.assign(challenge.begin(), challenge.end());
      continue;
    }
    const auto is_proof_of = [&](const std::string& token) {
      const wire::digest right = wire::prove(wire::side::client, token, hello, asked, channel);
      return std::ranges::equal(right, payload);
    };
    FUZZ_EXPECT(op == opcode::proof && is_known && (is_proof_of(old_token) || is_proof_of(new_token)));
    server.welcome({.session = {std::byte{1}}, .maximum_outstanding = 1});
    const std::optional<wire::welcome> said =
        wire::decode_welcome(payload_of(server.to_send()), wire::decode_challenge(asked)->version);
    FUZZ_EXPECT(said && said->proof != wire::digest{});
    return;
  }
}

// The next message of a server that may know the token.
byte_string some_answer(choices& from, std::span<const std::byte> hello, std::span<const std::byte> asked,
                        std::uint16_t version, const std::optional<wire::channel_binding>& channel, opcode* op) {
  const auto kind = from.number<std::uint8_t>();
  byte_string payload(wire::maximum_handshake_bytes);
  if (kind < 90) {
    *op = opcode::challenge;
    wire::challenge said{.version = static_cast<std::uint16_t>(from.number<std::uint8_t>() % 6),
                         .token_wanted = from.number<std::uint8_t>() < 200};
    payload.resize(wire::encode(said, payload));
  } else if (kind < 150) {
    *op = opcode::welcome;
    wire::welcome said{.proof = some_proof(from, hello, asked, channel),
                       .session = {std::byte{from.number<std::uint8_t>()}},
                       .maximum_outstanding = from.number<std::uint8_t>()};
    payload.resize(wire::encode(said, payload, version));
  } else if (kind < 190) {
    *op = opcode::unknown;
    payload.resize(wire::encode(wire::unknown_session{some_proof(from, hello, asked, channel), "gone"}, payload));
  } else if (kind < 220) {
    *op = opcode::refuse;
    payload.resize(wire::encode_refusal((kind & 1) != 0 ? "unknown session: gone" : "\x1b[2J", payload));
  } else {
    *op = static_cast<opcode>(from.number<std::uint8_t>());
    const std::span<const std::byte> raw = from.take(from.number<std::uint8_t>());
    payload.assign(raw.begin(), raw.end());
  }
  return payload;
}

void attack_client(choices& from) {
  using step = wire::client_handshake::step;
  wire::client_handshake client({.tenant = "alice", .token = new_token, .random = next_number});
  std::optional<wire::channel_binding> channel;
  const auto kind = from.number<std::uint8_t>();
  if ((kind & 1) != 0) channel = wire::channel_binding{std::byte{9}};
  client.bind(channel);
  const std::uint16_t oldest = (kind & 2) != 0 ? wire::client_handshake::first_version_that_proves : 1;
  client.begin((kind & 4) != 0 ? wire::session_id{std::byte{1}} : wire::session_id{}, 0, oldest);
  const byte_string hello(payload_of(client.to_send()).begin(), payload_of(client.to_send()).end());
  client.sent(client.to_send().size());
  byte_string asked;
  std::uint16_t version = 1;
  for (std::size_t steps = 0; steps < most_steps && !from.empty(); ++steps) {
    opcode op = opcode::ping;
    const byte_string payload = some_answer(from, hello, asked, version, channel, &op);
    const tight_copy sent(payload);
    const step got = client.take(head_of(op, payload, false), sent.all());
    for (const char* letter = client.explanation(); *letter != '\0'; ++letter) {
      FUZZ_EXPECT(*letter >= ' ' && *letter <= '~');
    }
    const auto proves = [&](wire::side prover) {
      const wire::digest right = wire::prove(prover, new_token, hello, asked, channel);
      return payload.size() >= right.size() && std::equal(right.begin(), right.end(), payload.begin());
    };
    switch (got) {
      case step::more:
        FUZZ_EXPECT(op == opcode::challenge && asked.empty());
        asked = payload;
        version = client.version();
        FUZZ_EXPECT(version >= oldest && version <= wire::newest_version);
        client.sent(client.to_send().size());
        break;
      case step::done: FUZZ_EXPECT(op == opcode::welcome && proves(wire::side::server)); return;
      case step::unknown_session:
        // Only version 1 has a way to say it without a proof, and only to those that do not ask for more.
        FUZZ_EXPECT(proves(wire::side::absent) || proves(wire::side::server) || (op == opcode::refuse && oldest < 2));
        return;
      case step::refused: return;
    }
  }
}

}  // namespace

std::vector<byte_string> seeds() {
  return {
      seed_of({0, 1, 0, 3, 1, 0, 0, 100, 0}),         // a server, and a client that knows the new token, over TLS
      seed_of({0, 0, 0, 0, 1, 0, 0, 100, 1}),         // the old one, version 1
      seed_of({0, 1, 0, 3, 1, 0, 0, 100, 4}),         // a proof that is not bound
      seed_of({0, 0, 0, 3, 0, 0, 0, 100, 0}),         // a tenant that nobody knows
      seed_of({0, 0, 0, 3, 1, 0, 2, 7, 7, 100, 2}),   // bytes after the name; a wrong token
      seed_of({0, 1, 200, 1, 3, 0, 0, 0, 100, 130}),  // a message that is none
      seed_of({1, 1, 0, 4, 1, 100, 8, 1, 1}),         // a client, and a server that knows the token
      seed_of({1, 5, 0, 4, 1, 100, 10, 1, 1}),        // one that does not
      seed_of({1, 6, 0, 3, 1, 160, 16}),              // the session is gone
      seed_of({1, 4, 0, 1, 1, 191}),                  // as version 1 says it
      seed_of({1, 0, 0, 4, 201, 190}),                // no token is wanted
  };
}

}  // namespace far::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  far::fuzz::choices from(std::as_bytes(std::span(data, bytes)));
  if ((from.number<std::uint8_t>() & 1) == 0) {
    far::fuzz::attack_server(from);
  } else {
    far::fuzz::attack_client(from);
  }
  return 0;
}
