// A 128-bit hash of a page, to find out whether its bytes have changed. Two different contents agree by chance once in
// 2^128 pairs, far more rarely than memory itself errs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace far {

struct page_hash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  bool operator==(const page_hash&) const = default;
};

// Requires: `page` is page_bytes long.
[[nodiscard]] page_hash hash_page(const std::byte* page) noexcept;

}  // namespace far
