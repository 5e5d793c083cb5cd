// The pure decoders: they never read beyond the end of their input, and accept only what an encoder makes.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "fuzz/fuzz_target.h"
#include "wire/device.h"
#include "wire/handshake.h"
#include "wire/message.h"

namespace far::fuzz {

namespace {

using wire::maximum_handshake_bytes;

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

void try_header(std::span<const std::byte> input) {
  if (input.size() < wire::header_bytes) return;
  const auto bytes = input.first<wire::header_bytes>();
  const std::optional<wire::header> decoded = wire::decode_header(bytes);
  if (!decoded) return;
  FUZZ_EXPECT(decoded->payload_bytes <= wire::maximum_payload_bytes);
  std::array<std::byte, wire::header_bytes> again{};
  wire::encode(*decoded, again);
  FUZZ_EXPECT(same(again, bytes));
}

void check_batch(const wire::batch& accepted) {
  FUZZ_EXPECT(accepted.count >= 1 && accepted.count <= wire::maximum_batch);
  std::size_t total = 0;
  for (const wire::range& one : accepted.all()) {
    FUZZ_EXPECT(one.length_bytes > 0);
    total += one.length_bytes;
  }
  FUZZ_EXPECT(total == accepted.total_bytes && total <= wire::maximum_payload_bytes);
}

void try_batches(std::span<const std::byte> payload) {
  std::array<std::byte, wire::write_prefix_bytes(wire::maximum_batch)> again{};
  wire::batch into;
  if (wire::decode_read(payload, &into)) {
    check_batch(into);
    FUZZ_EXPECT(same(payload, std::span(again).first(wire::encode_read(into.all(), again))));
  }
  if (wire::decode_write(payload, &into)) {
    check_batch(into);
    FUZZ_EXPECT(into.bytes.size() == into.total_bytes);
    FUZZ_EXPECT(into.bytes.data() + into.bytes.size() == payload.data() + payload.size());
    const std::size_t prefix_bytes = wire::encode_write_prefix(into.all(), again);
    FUZZ_EXPECT(same(payload.first(prefix_bytes), std::span(again).first(prefix_bytes)));
  }
}

void try_fixed(std::span<const std::byte> payload) {
  if (payload.size() >= wire::block_range_bytes) {
    const auto bytes = payload.first<wire::block_range_bytes>();
    std::array<std::byte, wire::block_range_bytes> again{};
    wire::encode(wire::decode_block_range(bytes), again);
    FUZZ_EXPECT(same(again, bytes));
  }
  if (payload.size() >= wire::capacity_report_bytes) {
    const auto bytes = payload.first<wire::capacity_report_bytes>();
    std::array<std::byte, wire::capacity_report_bytes> again{};
    wire::encode(wire::decode_capacity_report(bytes), again);
    FUZZ_EXPECT(same(again, bytes));
  }
  if (const std::optional<wire::call_request> call = wire::decode_call(payload)) {
    std::array<std::byte, wire::call_header_bytes> again{};
    FUZZ_EXPECT(wire::encode_call(call->name, again));
    FUZZ_EXPECT(same(again, payload.first(wire::call_header_bytes)));
    FUZZ_EXPECT(same(call->arguments, payload.subspan(wire::call_header_bytes)));
  }
}

void try_device(std::span<const std::byte> payload) {
  if (const std::optional<wire::device_request> asked = wire::decode_device_request(payload)) {
    std::array<std::byte, wire::device_request_bytes> again{};
    wire::encode(*asked, again);
    FUZZ_EXPECT(same(again, payload.first(wire::device_request_bytes)));
    FUZZ_EXPECT(same(asked->bytes, payload.subspan(wire::device_request_bytes)));
    FUZZ_EXPECT(asked->op == wire::device_op::list || asked->call != 0);
  }
  if (const std::optional<wire::device_reply> said = wire::decode_device_reply(payload)) {
    std::array<std::byte, wire::device_reply_bytes> again{};
    wire::encode(*said, again);
    FUZZ_EXPECT(same(again, payload.first(wire::device_reply_bytes)));
    FUZZ_EXPECT(same(said->bytes, payload.subspan(wire::device_reply_bytes)));
  }
  if (const std::optional<wire::device_construction> made = wire::decode_construction(payload)) {
    FUZZ_EXPECT(wire::is_plugin_name(made->plugin));
    FUZZ_EXPECT(1 + made->plugin.size() + made->parameters.size() == payload.size());
  }
}

void try_handshake(std::span<const std::byte> payload) {
  std::array<std::byte, maximum_handshake_bytes> again{};
  if (const std::optional<wire::hello> hello = wire::decode_hello(payload)) {
    const std::size_t bytes = wire::encode(*hello, again);
    FUZZ_EXPECT(bytes <= payload.size() && same(payload.first(bytes), std::span(again).first(bytes)));
  }
  if (const std::optional<wire::challenge> challenge = wire::decode_challenge(payload)) {
    FUZZ_EXPECT(same(payload, std::span(again).first(wire::encode(*challenge, again))));
  }
  if (const std::optional<wire::welcome> welcome = wire::decode_welcome(payload)) {
    FUZZ_EXPECT(same(payload, std::span(again).first(wire::encode(*welcome, again))));
  }
  if (const std::optional<wire::welcome> first = wire::decode_welcome(payload, 1)) {
    FUZZ_EXPECT(same(payload, std::span(again).first(wire::encode(*first, again, 1))));
  }
  if (const std::optional<wire::unknown_session> gone = wire::decode_unknown_session(payload)) {
    FUZZ_EXPECT(same(payload.first(wire::proof_bytes),
                     std::span(again).first(wire::encode(*gone, again)).first(wire::proof_bytes)));
  }
  const std::string why = wire::decode_refusal(payload);
  FUZZ_EXPECT(!why.empty() && why.size() <= wire::maximum_refusal_bytes);
  FUZZ_EXPECT(std::ranges::all_of(why, [](char letter) { return letter >= ' ' && letter <= '~'; }));
}

// The other way round: sensible fields come back through encoder and decoder.
void try_made_header(choices from) {
  wire::header head = {.op = static_cast<wire::opcode>(from.number<std::uint8_t>()),
                       .is_reply = (from.number<std::uint8_t>() & 1) != 0,
                       .result = static_cast<wire::status>(from.number<std::uint8_t>()),
                       .payload_bytes = from.number<std::uint32_t>(),
                       .cookie = from.number<std::uint64_t>(),
                       .payload_checksum = from.number<std::uint64_t>()};
  std::array<std::byte, wire::header_bytes> bytes{};
  wire::encode(head, bytes);
  const std::optional<wire::header> back = wire::decode_header(bytes);
  if (back) FUZZ_EXPECT(*back == head);
  const bool good = wire::is_request(head.op) && head.payload_bytes <= wire::maximum_payload_bytes &&
                    (head.is_reply ? head.result <= wire::last_status : head.result == wire::status::ok);
  if (good) FUZZ_EXPECT(back);
}

void try_checksum(std::span<const std::byte> payload) {
  const std::size_t cut = payload.size() / 3;
  const std::array<hash_part, 2> parts = {{{payload.data(), cut}, {payload.data() + cut, payload.size() - cut}}};
  FUZZ_EXPECT(wire::checksum_of_parts(parts) == wire::checksum(payload));
}

template <typename Message>
byte_string encoded(const Message& from) {
  byte_string bytes(maximum_handshake_bytes);
  bytes.resize(wire::encode(from, bytes));
  return bytes;
}

}  // namespace

std::vector<byte_string> seeds() {
  byte_string header(wire::header_bytes);
  wire::encode(wire::header{.op = wire::opcode::write, .payload_bytes = 4136, .cookie = 9, .payload_checksum = 5},
               std::span(header).first<wire::header_bytes>());
  const std::array<wire::range, 2> ranges = {{{.slot = 7, .offset_bytes = 100, .length_bytes = 5},
                                              {.slot = 1U << 20, .offset_bytes = 4095, .length_bytes = 1}}};
  byte_string read(ranges.size() * wire::range_bytes);
  wire::encode_read(ranges, read);
  byte_string write(wire::write_prefix_bytes(ranges.size()) + 6);
  wire::encode_write_prefix(ranges, write);
  byte_string call(wire::call_header_bytes + 3);
  FUZZ_EXPECT(wire::encode_call("sum.u64", std::span(call).first<wire::call_header_bytes>()));
  byte_string device(wire::device_request_bytes + 8);
  wire::encode(wire::device_request{.op = wire::device_op::construct, .device = 1, .call = 1, .room_bytes = 1 << 20},
               std::span(device).first<wire::device_request_bytes>());
  wire::welcome welcome = {.quota_slots = 1, .grace_ms = 2, .maximum_outstanding = 3};
  welcome.session[0] = std::byte{1};
  return {header,
          read,
          write,
          call,
          device,
          recipe().number<std::uint8_t>(6).text("sorted, and parameters").bytes(),
          encoded(wire::hello{}),
          encoded(wire::challenge{.version = wire::newest_version, .token_wanted = true}),
          encoded(welcome),
          encoded(wire::unknown_session{.reason = "unknown session"}),
          recipe().text("no such tenant").bytes()};
}

}  // namespace far::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace far::fuzz;
  const tight_copy input(std::as_bytes(std::span(data, bytes)));
  try_header(input.all());
  try_batches(input.all());
  try_fixed(input.all());
  try_device(input.all());
  try_handshake(input.all());
  try_made_header(choices(input.all()));
  try_checksum(input.all());
  return 0;
}
