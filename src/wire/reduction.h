// The call "reduce": a memory server reduces the numbers of pages (base/page_reduction.h) instead of sending them.
//
//     offset  size
//     0       8     the type of the numbers: 0 to 9, as in far/detail/reduction.h
//     8       8     the lowest number that counts, in its own representation, zero-extended
//     16      8     the highest
//     24      192   the secret of the hash
//     216     16 n  ranges, as in a read; each lies in one slot, and begins and ends at a number
//
// The result has 48 bytes for each range: count, lower and upper half of the sum, least and greatest number, and the
// hash of the pieces of the whole slot.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "base/page_reduction.h"
#include "wire/message.h"

namespace far::wire {

inline constexpr std::string_view reduction_name = "reduce";
inline constexpr std::size_t reduction_bytes = 24 + page_hasher::secret_bytes;  // in front of the ranges
inline constexpr std::size_t reduced_bytes = 48;
static_assert(sizeof(reduced_page) == reduced_bytes && alignof(reduced_page) == 8,
              "results are received where they are used");

// The payload of the call. Returns its length. Requires: room for it.
std::size_t encode_reduction(const page_reduction& asked, std::span<const range> ranges, std::span<std::byte> to);

// In the server.
struct reduction_request {
  reduction how;
  page_hasher hash;
  batch ranges;
};
// Of a call's arguments; nothing when they make no sense.
[[nodiscard]] std::optional<reduction_request> decode_reduction(std::span<const std::byte> arguments);

void encode(const reduced_page& from, std::span<std::byte, reduced_bytes> to);

}  // namespace far::wire
