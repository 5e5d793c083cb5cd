// The call "group": a memory server answers a question about rows of columns (base/page_reduction.h, of_rows), whose
// groups other pages tell.
//
//     offset  size
//     0       1     the type of the numbers: 0 to 9, as in far/detail/reduction.h
//     1       1     what is wanted of them: 1 sums, 2 least, 4 greatest, 8 counts, 16 buckets, added up
//     2       1     how many groups there are: the product of the counts of keys
//     3       1     how many columns of keys: 1 to 4; with buckets also 0
//     4       4     how many rows a question is about; each column fills whole pages with them
//     8       8     the lowest number that counts, in its own representation, zero-extended
//     16      8     the highest
//     24      64    for each of four keys: the least one (8), likewise; how many there are from it on (4); its type
//     (1);
//                   zeros (3). All zeros: there is no such key
//     88      192   the secret of the hash
//     280     1     if buckets are wanted: how many of each group
//     281     1     for how many different numbers there is room, if the only bucket of each group is listed; else 0
//     282     6     zeros
//             16 n  then, for each group: the key of the lowest number of its first bucket; how many bits of a key are
//                   within a bucket (1); zeros (7)
//             8 n   slots: for each question those of the first key, of the next ones, and of the numbers if something
//                   is wanted of them
//
// The result has answer_bytes() for each question.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "base/page_reduction.h"
#include "wire/message.h"

namespace far::wire {

inline constexpr std::string_view rows_name = "group";
inline constexpr std::size_t rows_bytes = 88 + page_hasher::secret_bytes;  // in front of buckets and slots
// Of the buckets of all groups.
[[nodiscard]] constexpr std::size_t buckets_bytes(std::size_t groups) {
  return sizeof(std::uint64_t) + groups * 2 * sizeof(std::uint64_t);
}
inline constexpr std::size_t most_rows_bytes = rows_bytes + buckets_bytes(detail::most_groups_with_buckets);
static_assert(detail::most_row_pages <= maximum_batch, "a call has room for a question");

// The payload of the call. Returns its length. Requires: room for it; at most maximum_batch slots, those of whole
// questions.
std::size_t encode_rows(const page_reduction& asked, std::span<const std::uint64_t> slots, std::span<std::byte> to);

// In the server.
struct rows_request {
  // As if it were a read of whole slots.
  [[nodiscard]] batch ranges() const;

  reduction how;  // `how.rows` is null; see question()
  detail::keyed_rows rows;
  page_hasher hash;
  std::array<std::uint64_t, maximum_batch> slots{};
  std::size_t slot_count = 0;

  // Valid as long as this is where it is.
  [[nodiscard]] reduction question() const {
    reduction whole = how;
    whole.rows = &rows;
    return whole;
  }
};
// Of a call's arguments; nothing when they make no sense.
[[nodiscard]] std::optional<rows_request> decode_rows(std::span<const std::byte> arguments);

}  // namespace far::wire
