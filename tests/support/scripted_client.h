// For tests: a server with one event loop's worth of protocols, without sockets and with a clock that the test moves,
// and clients that say what the test tells them to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/protocol.h"
#include "wire/handshake.h"
#include "wire/message.h"
#include "wire/packing.h"

namespace far::server {

using bytes = std::vector<std::byte>;

constexpr std::uint64_t second_ns = 1'000'000'000;
inline const std::string good_token = "0123456789abcdef0123456789abcdef";

// The state that all connections of a test share.
struct test_server {
  explicit test_server(std::uint64_t blocks = 8, const std::string& tokens = "",
                       std::map<std::string, std::uint64_t> quota = {}) {
    if (!tokens.empty()) book = std::move(token_book::parse(tokens, "test")).value();
    store_settings wanted;
    wanted.memory_bytes = blocks * block_bytes;
    wanted.grace_ns = 60 * second_ns;
    wanted.quota_bytes = std::move(quota);
    lent = std::move(store::create(std::move(wanted))).value();
    settings.lent = lent.get();
    settings.tokens = &book;
    reader.emplace(lent->readers());
    reader->quiet();
  }

  token_book book;
  std::unique_ptr<store> lent;
  protocol_settings settings;
  loop_counters counters;
  std::optional<quiescent_states::reader> reader;
  std::uint64_t now_ns = 1000 * second_ns;
};

struct message {
  wire::header head;
  bytes payload;
};

class scripted_client {
 public:
  explicit scripted_client(test_server& server, const std::string& network = "10.0.0.9")
      : server_(server), talk(server.settings, server.counters, server.now_ns, network) {}
  ~scripted_client() { talk.leave(server_.now_ns); }

  // One turn of an event loop for this connection.
  void turn() {
    server_.reader->quiet();
    talk.work(server_.now_ns);
  }

  void send_raw(std::span<const std::byte> bytes_left) {
    while (!bytes_left.empty()) {
      const std::span<std::byte> space = talk.receive_space();
      ASSERT_FALSE(space.empty()) << "the server takes no more";
      const std::size_t part = std::min(space.size(), bytes_left.size());
      std::memcpy(space.data(), bytes_left.data(), part);
      talk.received(part, server_.now_ns);
      bytes_left = bytes_left.subspan(part);
      turn();
      if (talk.is_over()) return;
    }
  }

  static bytes encoded(wire::header head, std::span<const std::byte> payload) {
    head.payload_bytes = static_cast<std::uint32_t>(payload.size());
    if (head.payload_checksum == 0) head.payload_checksum = wire::checksum(payload);
    bytes whole(wire::header_bytes + payload.size());
    wire::encode(head, std::span(whole).first<wire::header_bytes>());
    std::copy(payload.begin(), payload.end(), whole.begin() + wire::header_bytes);
    return whole;
  }
  void send(wire::header head, std::span<const std::byte> payload = {}) { send_raw(encoded(head, payload)); }

  // The next message of the server; nothing when there is none.
  std::optional<message> take() {
    const std::span<const std::byte> out = talk.to_send();
    if (out.size() < wire::header_bytes) return std::nullopt;
    const std::optional<wire::header> head = wire::decode_header(out.first<wire::header_bytes>());
    EXPECT_TRUE(head.has_value());
    if (!head) return std::nullopt;
    const std::span<const std::byte> payload = out.subspan(wire::header_bytes, head->payload_bytes);
    EXPECT_EQ(wire::checksum(payload), head->payload_checksum);
    message got{*head, {payload.begin(), payload.end()}};
    talk.sent(wire::header_bytes + payload.size(), server_.now_ns);
    return got;
  }

  // The result of a call that has so many bytes, packed or not.
  static bytes unpacked(const message& got, std::size_t size) {
    if (!got.head.is_packed) return got.payload;
    wire::unpacker unpacks;
    const std::span<const std::byte> whole = unpacks.unpack(got.payload, size);
    return {whole.begin(), whole.end()};
  }

  // Sends a request and returns its reply, however many turns it takes.
  message ask(wire::opcode op, std::span<const std::byte> payload = {}) {
    send({.op = op, .cookie = ++cookie_}, payload);
    for (int turns = 0; turns < 10000; ++turns) {
      if (std::optional<message> got = take()) {
        EXPECT_EQ(got->head.op, op);
        EXPECT_TRUE(got->head.is_reply);
        EXPECT_EQ(got->head.cookie, cookie_);
        return *got;
      }
      if (talk.is_over()) break;
      turn();
    }
    ADD_FAILURE() << "no reply";
    return {};
  }
  wire::status ask_blocks(wire::opcode op, std::uint64_t first, std::uint64_t count) {
    bytes payload(wire::block_range_bytes);
    wire::encode(wire::block_range{first, count}, std::span(payload).first<wire::block_range_bytes>());
    return ask(op, payload).head.result;
  }
  message read(const std::vector<wire::range>& ranges) { return ask(wire::opcode::read, read_payload(ranges)); }
  wire::status write(const std::vector<wire::range>& ranges, std::span<const std::byte> data) {
    return ask(wire::opcode::write, write_payload(ranges, data)).head.result;
  }
  static bytes read_payload(const std::vector<wire::range>& ranges) {
    bytes payload(ranges.size() * wire::range_bytes);
    static_cast<void>(wire::encode_read(ranges, payload));
    return payload;
  }
  static bytes write_payload(const std::vector<wire::range>& ranges, std::span<const std::byte> data) {
    bytes payload(wire::write_prefix_bytes(ranges.size()));
    static_cast<void>(wire::encode_write_prefix(ranges, payload));
    payload.insert(payload.end(), data.begin(), data.end());
    return payload;
  }

  // The handshake's two halves, and both.
  void say_hello(const wire::hello& said) {
    bytes room(wire::maximum_handshake_bytes);
    room.resize(wire::encode(said, room));
    hello_payload_ = room;
    send({.op = wire::opcode::hello}, room);
  }
  void say_proof(const std::string& token, std::span<const std::byte> challenge) {
    const wire::digest proof = wire::prove(wire::side::client, token, hello_payload_, challenge);
    send({.op = wire::opcode::proof}, proof);
  }
  // The welcome, or nothing.
  std::optional<wire::welcome> shake_hands(wire::hello said = {}, const std::string& token = "") {
    say_hello(said);
    const std::optional<message> challenge = take();
    if (!challenge || challenge->head.op != wire::opcode::challenge) return std::nullopt;
    say_proof(token, challenge->payload);
    turn();
    turn();
    last_ = take();
    if (!last_ || last_->head.op != wire::opcode::welcome) return std::nullopt;
    std::optional<wire::welcome> got = wire::decode_welcome(last_->payload);
    const wire::digest expected = wire::prove(wire::side::server, token, hello_payload_, challenge->payload);
    const bool proved = !got || token.empty() || wire::equal_digests(got->proof, expected);
    EXPECT_TRUE(proved) << "the server knows it too";
    return got;
  }
  // Why the handshake failed.
  [[nodiscard]] std::string refusal() const { return last_ ? wire::decode_refusal(last_->payload) : "nothing"; }

 private:
  test_server& server_;
  bytes hello_payload_;
  std::optional<message> last_;
  std::uint64_t cookie_ = 0;

 public:
  protocol talk;
};

inline bytes pattern(std::size_t count, std::uint64_t seed) {
  bytes content(count);
  for (std::size_t i = 0; i < count; ++i) content[i] = static_cast<std::byte>((i * 131 + seed * 17 + i / 251) & 0xff);
  return content;
}

}  // namespace far::server
