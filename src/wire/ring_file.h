// The layout of the memory that a client of `shm:` and the server share for one connection: two rings and an area for
// payloads. The slots' bytes lie in another file, the session's memory.
//
//     page 0    magic, version, and the words of both rings, each on lines of its own
//     page 1    requests, from the client        page 2    replies, from the server
//     page 3    payload area: a fragment for every request that can be on its way
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/units.h"
#include "wire/ring.h"

namespace far::wire {

inline constexpr std::uint64_t ring_magic = 0x31676e6972726166u;
inline constexpr std::uint32_t ring_version = 1;
inline constexpr std::uint32_t ring_length = 64;
inline constexpr std::size_t fragment_bytes = 64 * kib;  // of the payload area; the most one read or write moves
inline constexpr std::size_t area_offset_bytes = 3 * page_bytes;
inline constexpr std::size_t area_bytes = ring_length * fragment_bytes;
inline constexpr std::size_t ring_file_bytes = area_offset_bytes + area_bytes;

// The same numbers as those of wire::opcode. There is no "close": a session ends when the last socket of its
// connections is closed.
enum class ring_operation : std::uint8_t {
  read = 16,   // slot, offset, length -> fragment
  write = 17,  // fragment -> slot, offset, length
  allocate =
      18,     // blocks [first, first + count), in this order; the reply says how many were granted, from the first on
  free = 19,  // blocks [first, first + count)
  capacity = 20,  // reply: four values, those of wire::capacity_report
  // Fragments, `count` of them from `fragment` on, 0 for one: the payload of wire::opcode::call, `length` bytes; reply:
  // the result, in the same place.
  call = 21,
  ping = 22,
};

// 64 bytes. Fields that an operation does not name are zero.
struct ring_request {
  ring_operation op = ring_operation::ping;
  std::uint8_t zero[3] = {};
  std::uint32_t fragment = 0;  // which part of the payload area
  std::uint64_t cookie = 0;
  std::uint64_t first = 0;  // slot or block
  std::uint64_t count = 0;  // blocks; of a call, fragments
  std::uint32_t offset_bytes = 0;
  std::uint32_t length_bytes = 0;
  std::uint64_t unused[3] = {};
};
static_assert(sizeof(ring_request) == sizeof(ring_entry));

struct ring_reply {
  std::uint64_t cookie = 0;
  std::uint8_t status = 0;  // wire::status
  std::uint8_t zero[3] = {};
  std::uint32_t length_bytes = 0;  // of a call's result
  std::uint64_t values[4] = {};    // allocate: blocks granted; capacity: the report
  std::uint64_t unused[2] = {};
};
static_assert(sizeof(ring_reply) == sizeof(ring_entry));

struct ring_file {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t unused;
  shared_word requests_put;
  shared_word requests_taken;
  shared_word server_dozing;
  shared_word replies_put;
  shared_word replies_taken;
  shared_word client_dozing;
  // Set by the server before it takes the session's blocks away while the client lives: later reads of the session's
  // memory may return zeros.
  shared_word revoked;
  alignas(page_bytes) shared_entry requests[ring_length];
  alignas(page_bytes) shared_entry replies[ring_length];
  alignas(page_bytes) std::byte area[area_bytes];

  [[nodiscard]] ring_place request_ring() {
    return {&requests_put, &requests_taken, &server_dozing, requests, ring_length};
  }
  [[nodiscard]] ring_place reply_ring() { return {&replies_put, &replies_taken, &client_dozing, replies, ring_length}; }
};
static_assert(sizeof(ring_file) == ring_file_bytes);

}  // namespace far::wire
