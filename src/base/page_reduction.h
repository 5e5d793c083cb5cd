// Answering questions about the numbers of a page: their count, sum, minimum and maximum, which of them lie in an
// interval, how many in each part of it, and sums of groups of them. It is done where the page is, so that it need not
// be moved. The results are the same, bit for bit, wherever that is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/page_hash.h"
#include "far/detail/reduction.h"

namespace far {

using detail::reduced_numbers;
using detail::reduction;
using detail::reduction_kind;

[[nodiscard]] std::size_t number_bytes(detail::number_type type);

// Of numbers that lie one after the other. Those with a fraction are added in eight sums, the first with each eighth
// number, which are added to each other at the end. Requires: aligned as the numbers are; a whole number of them, at
// most 2^31.
[[nodiscard]] reduced_numbers reduce(const reduction& how, std::span<const std::byte> numbers);

// Adds what was found of the numbers that follow. The sum of those with a fraction depends on the order of the calls.
void add(const reduction& how, const reduced_numbers& found, reduced_numbers& to);

// Whether the question makes sense; what comes from a client may not.
[[nodiscard]] bool is_valid(const reduction& how);

// Whether find() may be called anywhere. A function of the program's may not: where it is to be called by a far tier in
// the program's own process, the program calls it.
[[nodiscard]] inline bool is_built_in(const reduction& how) {
  return how.kind != reduction_kind::computed;
}

// The length of the answer about a page, a multiple of 8; it depends on the question alone. Requires: is_valid().
[[nodiscard]] std::size_t found_bytes(const reduction& how);

// The answer about numbers of one page, `found_bytes` (detail::reduction_kind says what they are). Requires: as
// reduce(); at most a page of them; `to` is aligned to 8 bytes; if has_groups(): `groups` has the group of each number.
void find(const reduction& how, std::span<const std::byte> numbers, std::byte* to,
          const std::uint8_t* groups = nullptr);

// Whether the answer can be that about so many bytes of numbers: nothing in it lies beyond them, or outside the
// interval. A far tier that is not sound, or not honest, may say anything; what is possible may still be wrong.
// Requires: not of_rows; found_bytes(), of any alignment.
[[nodiscard]] bool is_possible_of_page(const reduction& how, std::size_t bytes_of_numbers, const std::byte* found);

// The groups of numbers as they travel, in as few bits as the question allows.
[[nodiscard]] std::size_t packed_group_bytes(const reduction& how, std::size_t bytes_of_numbers);
inline constexpr std::size_t most_packed_group_bytes = page_bytes * 6 / 8;  // of a page
// Requires: has_groups(); room for packed_group_bytes(), a multiple of 8, of any alignment.
void pack_groups(const reduction& how, const std::uint8_t* groups, std::size_t numbers, std::byte* to);
void unpack_groups(const reduction& how, const std::byte* packed, std::size_t numbers, std::uint8_t* to);

// A question to a store about one of its pages, or several (of_rows). The answer has found_bytes(), and then
// hash_of_pieces() of the page that it was computed from, or hash_of_pages().
struct page_reduction {
  reduction how;
  const page_hasher* hash = nullptr;  // that of the process that asks
  const std::byte* groups = nullptr;  // if has_groups(): those of the numbers, packed
  // If of_rows: the slots of its pages, those of the first key before those of the next one, and then the numbers'.
  std::span<const std::uint64_t> slots = {};

  // The same question, but for the groups, or slots.
  [[nodiscard]] bool is_like(const page_reduction& other) const { return how == other.how && hash == other.hash; }
};
[[nodiscard]] inline std::size_t answer_bytes(const reduction& how) {
  return found_bytes(how) + sizeof(std::uint64_t);
}
// Hashes of several pages as one.
[[nodiscard]] std::uint64_t hash_of_pages(std::span<const std::uint64_t> hashes);
// Of a question about rows: how many pages it is about, those of all columns in turn. Requires: is_valid().
[[nodiscard]] std::size_t pages_of_rows(const reduction& how);
// The answer to it, found_bytes(). `to` has any alignment. Requires: pages_of_rows() of them, aligned to 8 bytes.
void find_of_rows(const reduction& how, std::span<const std::byte* const> pages, std::byte* to);
// As is_possible_of_page(): whether counts and sums can be those of so many rows, and of the interval.
[[nodiscard]] bool is_possible_of_rows(const reduction& how, const std::byte* found);
// As find_of_rows(), with the hash.
void answer_about_rows(const page_reduction& asked, std::span<const std::byte* const> pages, std::byte* to);

inline constexpr std::size_t most_answer_bytes = detail::most_bucket_bytes + sizeof(std::uint64_t);
static_assert(detail::most_function_result <= detail::most_group_bytes);
static_assert(detail::most_group_bytes <= detail::most_bucket_bytes);
static_assert(most_answer_bytes >= page_bytes / 8 + sizeof(std::uint64_t), "one bit for each byte of a page");

// Requires: the page is aligned to 8 bytes; `numbers` is a part of it; `to` has room for the answer, and any alignment.
void answer(const page_reduction& asked, const std::byte* page, std::span<const std::byte> numbers, std::byte* to);
// The same; `groups` are not packed.
void answer(const reduction& how, const page_hasher& hash, const std::uint8_t* groups, const std::byte* page,
            std::span<const std::byte> numbers, std::byte* to);

// The answer to a summary.
struct reduced_page {
  reduced_numbers numbers;
  std::uint64_t check = 0;
};
[[nodiscard]] reduced_page reduce_page(const page_reduction& asked, const std::byte* page,
                                       std::span<const std::byte> numbers);

}  // namespace far
