#include "wire/message.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/units.h"
#include "base/xxh3.h"
#include "wire/bytes.h"

namespace far::wire {

namespace {

// "FARH" in the order of bytes on the wire.
constexpr std::uint32_t magic = 0x48524146;
constexpr std::uint8_t reply_flag = 1;
constexpr std::uint8_t packed_flag = 2;

// Where the fields of a header are.
constexpr std::size_t check_at = 0;
constexpr std::size_t magic_at = 4;
constexpr std::size_t opcode_at = 8;
constexpr std::size_t flags_at = 9;
constexpr std::size_t status_at = 10;
constexpr std::size_t zero_byte_at = 11;
constexpr std::size_t payload_bytes_at = 12;
constexpr std::size_t cookie_at = 16;
constexpr std::size_t payload_checksum_at = 24;
constexpr std::size_t zero_word_at = 32;

constexpr std::size_t write_ranges_at = write_prefix_bytes(0);

std::uint32_t header_check(const std::byte* header) {
  return static_cast<std::uint32_t>(fastest_xxh3().hash_64(header + magic_at, header_bytes - magic_at));
}

bool is_opcode(std::uint8_t code) {
  return (code >= static_cast<std::uint8_t>(opcode::hello) && code <= static_cast<std::uint8_t>(opcode::unknown)) ||
         (code >= static_cast<std::uint8_t>(opcode::read) && code <= static_cast<std::uint8_t>(opcode::close)) ||
         code == static_cast<std::uint8_t>(opcode::draining) || code == static_cast<std::uint8_t>(opcode::leaving);
}

range decode_range(const std::byte* from) {
  return {load<std::uint64_t>(from), load<std::uint32_t>(from + 8), load<std::uint32_t>(from + 12)};
}

// Reads `count` ranges into `into`. False when one of them is malformed, or all together exceed a payload.
bool decode_ranges(const std::byte* from, std::size_t count, batch* into) {
  into->count = count;
  into->total_bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const range one = decode_range(from + i * range_bytes);
    if (one.offset_bytes >= page_bytes || one.length_bytes == 0 || one.length_bytes > maximum_payload_bytes) {
      return false;
    }
    const std::uint64_t last_slot = (one.offset_bytes + std::uint64_t{one.length_bytes} - 1) / page_bytes;
    if (one.slot > std::numeric_limits<std::uint64_t>::max() - last_slot) return false;
    into->total_bytes += one.length_bytes;
    into->ranges[i] = one;
  }
  return into->total_bytes <= maximum_payload_bytes;
}

void encode_ranges(std::span<const range> ranges, std::byte* to) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    encode(ranges[i], std::span<std::byte, range_bytes>(to + i * range_bytes, range_bytes));
  }
}

// The name before its padding; empty when it is malformed.
std::string_view name_in(const char* from) {
  const std::string_view field(from, call_header_bytes);
  const std::string_view name = field.substr(0, field.find('\0'));
  const bool padded = name.size() < field.size() && field.find_first_not_of('\0', name.size()) == field.npos;
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
  return padded && printable ? name : std::string_view();
}

}  // namespace

bool is_request(opcode op) {
  return op >= opcode::read && op <= opcode::close;
}

std::uint64_t checksum(std::span<const std::byte> payload) {
  return payload.empty() ? 0 : fastest_xxh3().hash_64(payload.data(), payload.size());
}

std::uint64_t checksum_of_parts(std::span<const hash_part> parts) {
  const bool empty = std::all_of(parts.begin(), parts.end(), [](const hash_part& part) { return part.bytes == 0; });
  return empty ? 0 : fastest_xxh3().hash_64_of_parts(parts.data(), parts.size());
}

void encode(const header& from, std::span<std::byte, header_bytes> to) {
  std::byte* const at = to.data();
  store(magic, at + magic_at);
  store(static_cast<std::uint8_t>(from.op), at + opcode_at);
  store(static_cast<std::uint8_t>((from.is_reply ? reply_flag : 0) | (from.is_packed ? packed_flag : 0)),
        at + flags_at);
  store(static_cast<std::uint8_t>(from.result), at + status_at);
  store(std::uint8_t{0}, at + zero_byte_at);
  store(from.payload_bytes, at + payload_bytes_at);
  store(from.cookie, at + cookie_at);
  store(from.payload_checksum, at + payload_checksum_at);
  store(std::uint64_t{0}, at + zero_word_at);
  store(header_check(at), at + check_at);
}

std::optional<header> decode_header(std::span<const std::byte, header_bytes> from) {
  const std::byte* const at = from.data();
  if (load<std::uint32_t>(at + magic_at) != magic) return std::nullopt;
  if (load<std::uint32_t>(at + check_at) != header_check(at)) return std::nullopt;
  const auto code = load<std::uint8_t>(at + opcode_at);
  const auto flags = load<std::uint8_t>(at + flags_at);
  const auto result = load<std::uint8_t>(at + status_at);
  if (!is_opcode(code) || flags > (reply_flag | packed_flag) || result > static_cast<std::uint8_t>(last_status)) {
    return std::nullopt;
  }
  if (load<std::uint8_t>(at + zero_byte_at) != 0 || load<std::uint64_t>(at + zero_word_at) != 0) return std::nullopt;
  const header decoded = {.op = static_cast<opcode>(code),
                          .is_reply = (flags & reply_flag) != 0,
                          .result = static_cast<status>(result),
                          .payload_bytes = load<std::uint32_t>(at + payload_bytes_at),
                          .cookie = load<std::uint64_t>(at + cookie_at),
                          .payload_checksum = load<std::uint64_t>(at + payload_checksum_at),
                          .is_packed = (flags & packed_flag) != 0};
  if (decoded.payload_bytes > maximum_payload_bytes) return std::nullopt;
  if (decoded.is_reply && !is_request(decoded.op)) return std::nullopt;
  if (!decoded.is_reply && decoded.result != status::ok) return std::nullopt;
  const bool has_result = decoded.is_reply && decoded.op == opcode::call && decoded.payload_bytes > 0;
  if (decoded.is_packed && !has_result) return std::nullopt;
  return decoded;
}

void encode(const range& from, std::span<std::byte, range_bytes> to) {
  store(from.slot, to.data());
  store(from.offset_bytes, to.data() + 8);
  store(from.length_bytes, to.data() + 12);
}

void encode(const block_range& from, std::span<std::byte, block_range_bytes> to) {
  store(from.first, to.data());
  store(from.count, to.data() + 8);
}

block_range decode_block_range(std::span<const std::byte, block_range_bytes> from) {
  return {load<std::uint64_t>(from.data()), load<std::uint64_t>(from.data() + 8)};
}

void encode(const capacity_report& from, std::span<std::byte, capacity_report_bytes> to) {
  store(from.quota_slots, to.data());
  store(from.tenant_slots, to.data() + 8);
  store(from.server_free_slots, to.data() + 16);
  store(from.session_slots, to.data() + 24);
}

capacity_report decode_capacity_report(std::span<const std::byte, capacity_report_bytes> from) {
  return {load<std::uint64_t>(from.data()), load<std::uint64_t>(from.data() + 8), load<std::uint64_t>(from.data() + 16),
          load<std::uint64_t>(from.data() + 24)};
}

bool decode_read(std::span<const std::byte> payload, batch* into) {
  const std::size_t count = payload.size() / range_bytes;
  if (payload.size() % range_bytes != 0 || count == 0 || count > maximum_batch) return false;
  into->bytes = {};
  return decode_ranges(payload.data(), count, into);
}

bool decode_write(std::span<const std::byte> payload, batch* into) {
  if (payload.size() < write_ranges_at) return false;
  const auto count = load<std::uint32_t>(payload.data());
  if (count == 0 || count > maximum_batch || load<std::uint32_t>(payload.data() + 4) != 0) return false;
  const std::size_t prefix_bytes = write_prefix_bytes(count);
  if (payload.size() < prefix_bytes) return false;
  into->bytes = payload.subspan(prefix_bytes);
  return decode_ranges(payload.data() + write_ranges_at, count, into) && into->total_bytes == into->bytes.size();
}

std::size_t encode_write_prefix(std::span<const range> ranges, std::span<std::byte> to) {
  FAR_CHECK(ranges.size() <= maximum_batch && to.size() >= write_prefix_bytes(ranges.size()), "no room for the ranges");
  store(static_cast<std::uint32_t>(ranges.size()), to.data());
  store(std::uint32_t{0}, to.data() + 4);
  encode_ranges(ranges, to.data() + write_ranges_at);
  return write_prefix_bytes(ranges.size());
}

std::size_t encode_read(std::span<const range> ranges, std::span<std::byte> to) {
  FAR_CHECK(ranges.size() <= maximum_batch && to.size() >= ranges.size() * range_bytes, "no room for the ranges");
  encode_ranges(ranges, to.data());
  return ranges.size() * range_bytes;
}

bool encode_call(std::string_view name, std::span<std::byte, call_header_bytes> to) {
  call_header padded;
  if (name.empty() || name.size() >= padded.name.size()) return false;
  std::copy(name.begin(), name.end(), padded.name.begin());
  if (name_in(padded.name.data()) != name) return false;
  std::memcpy(to.data(), padded.name.data(), padded.name.size());
  return true;
}

std::optional<call_request> decode_call(std::span<const std::byte> payload) {
  if (payload.size() < call_header_bytes) return std::nullopt;
  const std::string_view name = name_in(reinterpret_cast<const char*>(payload.data()));
  if (name.empty()) return std::nullopt;
  return call_request{name, payload.subspan(call_header_bytes)};
}

}  // namespace far::wire
