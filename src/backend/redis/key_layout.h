// Where the bytes of slots lie in Redis.
//
// A block of 512 slots, as block_table counts them, is two strings: 447 pages and 65. Redis puts a header in front of a
// string, and its allocator rounds up to an eighth to a quarter of a power of two: one string of 512 pages would occupy
// 640, these two occupy 448 and 80 (docs/decisions/0036-redis-far-tier.md).
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "base/check.h"
#include "wire/message.h"

namespace far::backend {

inline constexpr std::uint64_t strings_per_block = 2;
inline constexpr std::array<std::uint64_t, strings_per_block> string_pages{447, 65};
static_assert(string_pages[0] + string_pages[1] == wire::block_slots);

// The strings of all blocks, counted from 0.
struct string_place {
  std::uint64_t string = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t left_bytes = 0;  // from there to the end of the string
};

// The place of byte `position` of `slot`.
[[nodiscard]] constexpr string_place locate(slot_id slot, std::uint64_t position) {
  slot += position / page_bytes;
  const std::uint64_t page = slot % wire::block_slots;
  const std::uint64_t part = page < string_pages[0] ? 0 : 1;
  const std::uint64_t offset_bytes = (page - part * string_pages[0]) * page_bytes + position % page_bytes;
  return {slot / wire::block_slots * strings_per_block + part, offset_bytes,
          string_pages[part] * page_bytes - offset_bytes};
}

[[nodiscard]] constexpr std::uint64_t bytes_of_string(std::uint64_t string) {
  return string_pages[string % strings_per_block] * page_bytes;
}

inline constexpr std::size_t most_key_bytes = 160;

// "PREFIX:SESSION:EPOCH:STRING". `stem` is its beginning, up to and including the second colon.
[[nodiscard]] inline std::string_view write_key(std::string_view stem, std::uint32_t epoch, std::uint64_t string,
                                                std::span<char, most_key_bytes> into) {
  FAR_CHECK(stem.size() + 48 <= into.size(), "a key fits");
  char* const end = into.data() + into.size();
  char* at = std::copy(stem.begin(), stem.end(), into.data());
  at = std::to_chars(at, end, epoch).ptr;
  *at++ = ':';
  at = std::to_chars(at, end, string).ptr;
  return {into.data(), static_cast<std::size_t>(at - into.data())};
}

}  // namespace far::backend
