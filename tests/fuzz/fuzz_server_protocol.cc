// A client that sends anything at all to the server's side of a connection, while a client that behaves looks on from
// another session: its connection goes on, and its bytes stay.
//
// The input is a list of steps (step_kind). Most make well-formed messages, so that the requests themselves are
// reached; some send bytes as they are.
#include <algorithm>
#include <array>
#include <string>

#include "fuzz/fuzz_target.h"
#include "fuzz/server_driver.h"

namespace far::fuzz {

namespace {

using wire::opcode;

enum class step_kind : std::uint8_t {
  blocks,    // allocate or free
  transfer,  // read or write some ranges
  checksum,  // call
  simple,    // capacity, ping, close
  message,   // any opcode, any payload, right checks
  damaged,   // a message whose payload does not fit its checksum
  raw,       // bytes
  cut,       // how many bytes the server receives at once, from now on
  reading,   // whether replies are read, from now on
  time,      // passes
  drain,     // the server will stop
  memory,    // is given back
};
constexpr std::size_t step_kinds = static_cast<std::size_t>(step_kind::memory) + 1;

constexpr std::size_t most_steps = 300;
constexpr std::size_t bystander_bytes = 5000;

byte_string bystander_content() {
  byte_string bytes(bystander_bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 + 7);
  return bytes;
}

// A client of another tenant, that has written something before the trouble begins.
class bystander {
 public:
  explicit bystander(small_store& at) : connection_(at) {
    connection_.shake_hands({.tenant = "bystander"});
    std::array<std::byte, wire::block_range_bytes> blocks{};
    wire::encode(wire::block_range{.first = 3, .count = 1}, blocks);
    connection_.request(opcode::allocate, blocks, 0);
    byte_string payload(wire::write_prefix_bytes(1));
    wire::encode_write_prefix(std::span(&where_, 1), payload);
    const byte_string content = bystander_content();
    payload.insert(payload.end(), content.begin(), content.end());
    connection_.request(opcode::write, payload, 0);
    connection_.pump();
  }

  void check() {
    byte_string payload(wire::range_bytes);
    wire::encode_read(std::span(&where_, 1), payload);
    connection_.request(opcode::read, payload, bystander_bytes);
    connection_.pump();
    FUZZ_EXPECT(!connection_.is_over() && connection_.is_settled());
    FUZZ_EXPECT(connection_.last_payload() == bystander_content());
  }

 private:
  wire::range where_{.slot = 3 * wire::block_slots + 9, .offset_bytes = 77, .length_bytes = bystander_bytes};
  connection connection_;
};

// Numbers that are near those in use, and now and then any number.
std::uint64_t block_number(choices& from) {
  const auto small = from.number<std::uint8_t>();
  return small < 250 ? small % 8 : from.number<std::uint64_t>();
}

wire::range some_range(choices& from) {
  const std::uint64_t block = block_number(from);
  const auto slot = from.number<std::uint16_t>();
  const auto kind = from.number<std::uint8_t>();
  const auto offset = from.number<std::uint16_t>();
  const auto length = from.number<std::uint16_t>();
  return {.slot = block * wire::block_slots + slot % wire::block_slots,
          .offset_bytes = kind < 250 ? offset % 4096U : offset,
          .length_bytes = kind < 200 ? length % 512U + 1 : std::uint32_t{length} << (kind % 8)};
}

void send_transfer(connection& to, choices& from) {
  const auto kind = from.number<std::uint8_t>();
  std::vector<wire::range> ranges;
  std::size_t total = 0;
  for (std::size_t i = 0; i < kind % 5U + 1; ++i) {
    ranges.push_back(some_range(from));
    total += ranges.back().length_bytes;
  }
  const bool fits = total <= wire::maximum_payload_bytes / 2;
  if (kind < 128) {
    byte_string payload(ranges.size() * wire::range_bytes);
    wire::encode_read(ranges, payload);
    return to.request(opcode::read, payload, total);
  }
  byte_string payload(wire::write_prefix_bytes(ranges.size()) + (fits ? total : 0), static_cast<std::byte>(kind));
  wire::encode_write_prefix(ranges, payload);
  to.request(opcode::write, payload, 0);
}

void send_blocks(connection& to, choices& from) {
  const bool frees = (from.number<std::uint8_t>() & 1) != 0;
  const std::uint64_t first = block_number(from);
  const std::uint64_t count = block_number(from);
  std::array<std::byte, wire::block_range_bytes> payload{};
  wire::encode(wire::block_range{first, count}, payload);
  to.request(frees ? opcode::free : opcode::allocate, payload, 0);
}

void send_checksum_call(connection& to, choices& from) {
  const auto kind = from.number<std::uint8_t>();
  byte_string payload(wire::call_header_bytes);
  FUZZ_EXPECT(
      wire::encode_call(kind < 200 ? "checksum" : "unknown", std::span(payload).first<wire::call_header_bytes>()));
  if (kind % 2 == 0) {
    const wire::range one = some_range(from);
    payload.resize(wire::call_header_bytes + wire::range_bytes);
    wire::encode_read(std::span(&one, 1), std::span(payload).subspan(wire::call_header_bytes));
  } else {
    const std::span<const std::byte> rest = from.take(kind);
    payload.insert(payload.end(), rest.begin(), rest.end());
  }
  to.request(opcode::call, payload, sizeof(std::uint64_t));
}

void send_simple(connection& to, choices& from) {
  constexpr std::array<opcode, 4> all = {opcode::ping, opcode::capacity, opcode::ping, opcode::close};
  const opcode op = all[from.number<std::uint8_t>() % all.size()];
  to.request(op, {}, op == opcode::capacity ? wire::capacity_report_bytes : 0);
}

void send_message(connection& to, choices& from, bool damaged) {
  const wire::header head = {.op = static_cast<opcode>(from.number<std::uint8_t>()),
                             .is_reply = from.number<std::uint8_t>() > 240,
                             .result = wire::status::ok,
                             .cookie = from.number<std::uint64_t>()};
  const auto length = from.number<std::uint8_t>();
  byte_string bytes = message_of(head, from.take(length));
  if (damaged && bytes.size() > wire::header_bytes) bytes.back() ^= std::byte{1};
  to.misbehave(bytes);
}

void take_step(small_store& at, connection& to, choices& from) {
  switch (static_cast<step_kind>(from.number<std::uint8_t>() % step_kinds)) {
    case step_kind::blocks: send_blocks(to, from); break;
    case step_kind::transfer: send_transfer(to, from); break;
    case step_kind::checksum: send_checksum_call(to, from); break;
    case step_kind::simple: send_simple(to, from); break;
    case step_kind::message: send_message(to, from, false); break;
    case step_kind::damaged: send_message(to, from, true); break;
    case step_kind::raw: to.misbehave(from.take(from.number<std::uint8_t>())); break;
    case step_kind::cut: to.set_cut(from.number<std::uint8_t>() * 5U + 1); break;
    case step_kind::reading: to.read_replies((from.number<std::uint8_t>() & 1) != 0); break;
    case step_kind::time: at.now_ns += std::uint64_t{from.number<std::uint8_t>()} * 1'000'000'000 / 20; break;
    case step_kind::drain: to.served().drain(); break;
    case step_kind::memory:
      if (to.served().to_send().empty()) to.served().release_memory();
      break;
  }
}

void run(choices from) {
  small_store at;
  {
    bystander other(at);
    {
      connection client(at);
      const auto start = from.number<std::uint8_t>();
      const wire::hello said = {.tenant = start % 2 == 0 ? "default" : "small"};
      if (start < 200) client.shake_hands(said);
      for (std::size_t steps = 0; steps < most_steps && !from.empty() && !client.is_over(); ++steps) {
        take_step(at, client, from);
        client.pump();
      }
      at.lent().validate();
    }
    at.now_ns = 1;  // the bystander was not silent
    other.check();
  }
  at.lent().expire(std::uint64_t{1} << 62);
  at.pass_quiet_point();
  at.pass_quiet_point();
  at.lent().validate();
  FUZZ_EXPECT(at.lent().report().held_blocks == 0 && at.lent().report().sessions == 0);
}

recipe& number(recipe& to, step_kind kind) {
  return to.number(static_cast<std::uint8_t>(kind));
}

}  // namespace

std::vector<byte_string> seeds() {
  const auto step = [](recipe& to, step_kind kind, std::initializer_list<unsigned> arguments) {
    number(to, kind);
    for (const unsigned argument : arguments) to.number(static_cast<std::uint8_t>(argument));
  };
  // Allocates blocks 0 and 1, writes across them, reads back, asks for a checksum, frees, and closes.
  recipe good;
  good.number(std::uint8_t{0});
  step(good, step_kind::blocks, {0, 0, 2});
  step(good, step_kind::transfer, {130, 0, 0xff, 1, 10, 0, 15, 0xff, 1});
  step(good, step_kind::transfer, {0, 0, 0xff, 1, 10, 0, 15, 0xff, 1});
  step(good, step_kind::checksum, {0, 0, 0xff, 1, 10, 0, 15, 0xff, 1});
  step(good, step_kind::simple, {1});
  step(good, step_kind::blocks, {1, 0, 2});
  step(good, step_kind::simple, {3});
  // The same in fragments, with replies that wait.
  recipe slow;
  slow.number(std::uint8_t{1});
  step(slow, step_kind::cut, {0});
  step(slow, step_kind::blocks, {0, 0, 1});
  step(slow, step_kind::reading, {0});
  step(slow, step_kind::simple, {0});
  step(slow, step_kind::time, {100});
  step(slow, step_kind::reading, {1});
  step(slow, step_kind::drain, {});
  step(slow, step_kind::memory, {});
  step(slow, step_kind::blocks, {0, 1, 1});
  // One failure of each kind.
  recipe foreign;
  foreign.number(std::uint8_t{0});
  step(foreign, step_kind::transfer, {0, 3, 9, 0, 10, 0, 15, 0xff, 0});
  recipe damaged;
  damaged.number(std::uint8_t{0});
  step(damaged, step_kind::damaged, {18, 0, 1, 2, 3, 4, 5, 6, 7, 8, 4, 1, 1, 1, 1});
  step(damaged, step_kind::message, {18, 0, 1, 2, 3, 4, 5, 6, 7, 8, 4, 1, 1, 1, 1});
  // Without a handshake: a hello, byte for byte.
  recipe raw;
  std::array<std::byte, wire::maximum_handshake_bytes> payload{};
  const std::size_t bytes = wire::encode(wire::hello{}, payload);
  const byte_string hello = message_of({.op = opcode::hello}, std::span(payload).first(bytes));
  raw.number(std::uint8_t{255});
  step(raw, step_kind::raw, {static_cast<unsigned>(hello.size())});
  raw.append(hello);
  step(raw, step_kind::raw, {9, 1, 2, 3});
  return {good.bytes(), slow.bytes(), foreign.bytes(), damaged.bytes(), raw.bytes()};
}

}  // namespace far::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  far::fuzz::run(far::fuzz::choices(std::as_bytes(std::span(data, bytes))));
  return 0;
}
