// The messages between a client of a memory server and the server: docs/wire.md describes them for other programs.
//
// A message is a header of 40 bytes and a payload. All numbers are little-endian. A request carries a cookie, and its
// reply carries the same one; replies come in any order. One message carries a whole batch: a read names up to
// `maximum_batch` byte ranges and is answered by their bytes, one after the other.
//
// Everything here is pure: bytes in, bytes out, no allocation, no system call. Bytes from the other side are trusted
// only after a decode function has accepted them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/xxh3.h"

namespace far::wire {

// Versions that this build speaks; hello offers a range, challenge says which one was chosen.
inline constexpr std::uint16_t oldest_version = 1;
inline constexpr std::uint16_t newest_version = 5;

// Slots are allocated and freed in blocks of this many, aligned to it: 2 MiB.
inline constexpr std::uint64_t block_slots = 512;

inline constexpr std::size_t header_bytes = 40;
inline constexpr std::size_t maximum_batch = 128;
// The largest payload of one message. A peer that announces a longer one loses its connection.
inline constexpr std::size_t maximum_payload_bytes = 1 << 20;

enum class opcode : std::uint8_t {
  // The handshake, in this order; see handshake.h.
  hello = 1,      // client: versions, nonce, tenant, session to join
  challenge = 2,  // server: version, nonce
  proof = 3,      // client: it knows the token
  welcome = 4,    // server: it knows the token too; the session
  refuse = 5,     // server: no, and why; the connection ends
  unknown = 6,    // server, version 2: it knows no such session, and the token; the connection ends

  // Requests. The reply has the same opcode, `is_reply` set, and a status.
  read = 16,      // payload: ranges; reply: their bytes
  write = 17,     // payload: count (u32), zero (u32), ranges, then their bytes; reply: nothing
  allocate = 18,  // payload: one block_range; reply: nothing. All or none
  free = 19,      // payload: one block_range; reply: nothing
  capacity = 20,  // reply: capacity_report
  call = 21,      // payload: call_header, then the operation's arguments; reply: its result
  ping = 22,      // reply: nothing
  close = 23,     // the client ends its session, and frees all its slots; reply: nothing

  // A notice of the server, without a reply: it will stop; no new blocks from now on.
  draining = 32,
  // A notice of the client, version 3: its process is about to end. The session ends soon after its last connection.
  leaving = 33,
};

enum class status : std::uint8_t {
  ok = 0,
  no_space = 1,       // the server, or the tenant's quota, is full
  not_allocated = 2,  // a slot that this session has not allocated
  draining = 3,       // the server is about to stop and allocates nothing any more
  unknown_call = 4,   // no operation of that name is registered
  call_failed = 5,    // the operation refused its arguments
  bad_checksum = 6,   // the payload arrived damaged; nothing was stored
};
inline constexpr status last_status = status::bad_checksum;

// read to close: requests of a client, which a server answers with a reply of the same opcode.
[[nodiscard]] bool is_request(opcode op);

struct header {
  opcode op = opcode::ping;
  bool is_reply = false;
  status result = status::ok;
  std::uint32_t payload_bytes = 0;
  std::uint64_t cookie = 0;
  std::uint64_t payload_checksum = 0;  // checksum() of the payload, as it is sent
  bool is_packed = false;              // of a call's reply, version 5: its payload is packed (packing.h)

  bool operator==(const header&) const = default;
};

// A part of one or more adjacent slots: `length_bytes` from `offset_bytes` of `slot` on. 16 bytes on the wire.
struct range {
  std::uint64_t slot = 0;
  std::uint32_t offset_bytes = 0;
  std::uint32_t length_bytes = 0;

  bool operator==(const range&) const = default;
};
inline constexpr std::size_t range_bytes = 16;

// Blocks [first, first + count) of the session. 16 bytes on the wire.
struct block_range {
  std::uint64_t first = 0;
  std::uint64_t count = 0;

  bool operator==(const block_range&) const = default;
};
inline constexpr std::size_t block_range_bytes = 16;

// In slots. 32 bytes on the wire.
struct capacity_report {
  std::uint64_t quota_slots = 0;   // the most this tenant may hold on this server
  std::uint64_t tenant_slots = 0;  // held in all its sessions
  std::uint64_t server_free_slots = 0;
  std::uint64_t session_slots = 0;  // held in this session

  bool operator==(const capacity_report&) const = default;
};
inline constexpr std::size_t capacity_report_bytes = 32;

// XXH3 with 64 bits. Of an empty payload: 0.
[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> payload);
// Of a payload that lies in parts.
[[nodiscard]] std::uint64_t checksum_of_parts(std::span<const hash_part> parts);

// Writes the header, with a check sum of its own fields in its first four bytes.
void encode(const header& from, std::span<std::byte, header_bytes> to);

// Nothing when the header's check fails, the opcode or the status is unknown, the payload is too long, what is no
// request has a reply, what is no reply has a status, or what is no result of a call is packed. The receiver compares
// the payload's checksum.
[[nodiscard]] std::optional<header> decode_header(std::span<const std::byte, header_bytes> from);

void encode(const range& from, std::span<std::byte, range_bytes> to);
void encode(const block_range& from, std::span<std::byte, block_range_bytes> to);
void encode(const capacity_report& from, std::span<std::byte, capacity_report_bytes> to);
[[nodiscard]] block_range decode_block_range(std::span<const std::byte, block_range_bytes> from);
[[nodiscard]] capacity_report decode_capacity_report(std::span<const std::byte, capacity_report_bytes> from);

// A batch of ranges, as far as form goes: whether the slots are allocated is the session's to say.
struct batch {
  std::array<range, maximum_batch> ranges{};
  std::size_t count = 0;
  std::size_t total_bytes = 0;       // of all ranges
  std::span<const std::byte> bytes;  // of a write: the contents, range after range

  [[nodiscard]] std::span<const range> all() const { return {ranges.data(), count}; }
};

// Accept a payload whose count is 1 to maximum_batch, whose ranges start inside their slot, are not empty and do not
// overflow, and whose total fits the reply (read) or equals the bytes that follow (write).
[[nodiscard]] bool decode_read(std::span<const std::byte> payload, batch* into);
[[nodiscard]] bool decode_write(std::span<const std::byte> payload, batch* into);

// A write's payload without its bytes: the part in front of them. Returns its length. Requires: room for
// write_prefix_bytes(count).
[[nodiscard]] constexpr std::size_t write_prefix_bytes(std::size_t count) {
  return 8 + count * range_bytes;
}
std::size_t encode_write_prefix(std::span<const range> ranges, std::span<std::byte> to);
std::size_t encode_read(std::span<const range> ranges, std::span<std::byte> to);

// An operation that runs beside the data: its registered name, at most 31 bytes, zero-padded to 32.
struct call_header {
  std::array<char, 32> name{};
};
inline constexpr std::size_t call_header_bytes = 32;

// The payload of a call, in place.
struct call_request {
  std::string_view name;
  std::span<const std::byte> arguments;
};

// False when `name` is empty, too long, or holds anything but printable ASCII without spaces.
[[nodiscard]] bool encode_call(std::string_view name, std::span<std::byte, call_header_bytes> to);
[[nodiscard]] std::optional<call_request> decode_call(std::span<const std::byte> payload);

}  // namespace far::wire
