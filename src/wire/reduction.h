// The call "reduce": a memory server answers a question about the numbers of pages (base/page_reduction.h) instead of
// sending them.
//
//     offset  size
//     0       1     the type of the numbers: 0 to 9, as in far/detail/reduction.h
//     1       1     the kind of the question: 0 to 7, likewise
//     2       1     of counts: how many bits the buckets have in common; of matches: the length of the text
//     3       1     of groups: how many; of matches: for how many places there is room, 0: for 56
//     4       2     of groups: the number of ranges
//     6       2     zero
//     8       8     the lowest number that counts, in its own representation, zero-extended
//     16      8     the highest
//     24      192   the secret of the hash
//     216     16 n  ranges, as in a read; each lies in one slot, and begins and ends at a number. From version 5 on,
//     one
//                   of several whole slots stands for as many ranges
//                   of groups: then for each range the groups of its numbers, the first in the lowest bits of words of
//                   8 bytes, each in as many bits as the number of groups has; that number, or more, is no group
//
// The result has answer_bytes() for each range: 40 in a summary, which are count, lower and upper half of the sum,
// least and greatest number; then the hash of the pieces of the whole slot.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "base/page_reduction.h"
#include "wire/message.h"

namespace far::wire {

inline constexpr std::string_view reduction_name = "reduce";
inline constexpr std::size_t reduction_bytes = 24 + page_hasher::secret_bytes;  // in front of the ranges
static_assert(sizeof(reduced_page) == 48 && alignof(reduced_page) == 8, "results are received where they are used");
static_assert(maximum_batch * most_answer_bytes <= maximum_payload_bytes, "a reply has room for the answers");
static_assert(call_header_bytes + reduction_bytes + maximum_batch * (range_bytes + most_packed_group_bytes) <=
                  maximum_payload_bytes,
              "a call has room for the groups");

inline constexpr std::uint16_t first_version_that_joins = 5;

// The payload of the call, but for the groups, which are sent behind it. Returns its length. `joins`: neighbouring
// whole slots are one range. Requires: at most maximum_batch ranges; room for them.
std::size_t encode_reduction(const page_reduction& asked, std::span<const range> ranges, bool joins,
                             std::span<std::byte> to);

// In the server.
struct reduction_request {
  reduction how;
  page_hasher hash;
  batch ranges;                       // each lies in one slot
  const std::byte* groups = nullptr;  // if has_groups(): those of all ranges, among the arguments
};
// Of a call's arguments; nothing when they make no sense.
[[nodiscard]] std::optional<reduction_request> decode_reduction(std::span<const std::byte> arguments);

}  // namespace far::wire
