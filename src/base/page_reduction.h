// Reducing the numbers of a page to their count, sum, minimum and maximum: where the page is, so that it need not be
// moved. The results are the same, bit for bit, wherever that is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/page_hash.h"
#include "far/detail/reduction.h"

namespace far {

using detail::reduced_numbers;
using detail::reduction;

[[nodiscard]] std::size_t number_bytes(detail::number_type type);

// Of numbers that lie one after the other. Those with a fraction are added in eight sums, the first with each eighth
// number, which are added to each other at the end. Requires: aligned as the numbers are; a whole number of them, at
// most 2^31.
[[nodiscard]] reduced_numbers reduce(const reduction& how, std::span<const std::byte> numbers);

// Adds what was found of the numbers that follow. The sum of those with a fraction depends on the order of the calls.
void add(const reduction& how, const reduced_numbers& found, reduced_numbers& to);

// A question to a store about one of its pages, and the answer.
struct page_reduction {
  reduction how;
  const page_hasher* hash = nullptr;  // that of the process that asks

  [[nodiscard]] bool is_like(const page_reduction& other) const { return how == other.how && hash == other.hash; }
};
struct reduced_page {
  reduced_numbers numbers;
  std::uint64_t check = 0;  // hash_of_pieces() of the page that it was computed from
};

// Requires: the page is aligned to 8 bytes; `numbers` is a part of it.
[[nodiscard]] reduced_page reduce_page(const page_reduction& asked, const std::byte* page,
                                       std::span<const std::byte> numbers);

}  // namespace far
