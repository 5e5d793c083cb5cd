// Unaligned transfers, cut into windows: aligned ranges of the file that fit into a bounce buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/units.h"

namespace far::backend {

// Enough for any transfer of up to a page in one window, wherever it begins.
inline constexpr std::size_t bounce_bytes = 2 * page_bytes;

// The rest of an unaligned transfer.
struct remainder {
  std::uint64_t position = 0;  // in the file
  std::uint64_t length_bytes = 0;
  std::byte* buffer = nullptr;
};

// The aligned range [begin, end) of the file that serves the first `used_bytes` of a remainder, which lie `skip_bytes`
// into it.
struct window {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::size_t skip_bytes = 0;
  std::size_t used_bytes = 0;

  [[nodiscard]] std::size_t length_bytes() const { return end - begin; }
  // Whether a write changes every byte, so that nothing need be read first.
  [[nodiscard]] bool is_covered() const { return used_bytes == length_bytes(); }
};

// Requires: rest.length_bytes > 0; `alignment` is a power of two, at most a page.
[[nodiscard]] inline window next_window(const remainder& rest, std::uint64_t alignment) {
  window next;
  next.begin = round_down(rest.position, alignment);
  next.end = std::min(round_up(rest.position + rest.length_bytes, alignment), next.begin + bounce_bytes);
  next.skip_bytes = rest.position - next.begin;
  next.used_bytes = std::min<std::uint64_t>(rest.length_bytes, next.end - rest.position);
  return next;
}

inline void copy_out_of(const window& served, const std::byte* bounce, const remainder& rest) {
  std::memcpy(rest.buffer, bounce + served.skip_bytes, served.used_bytes);
}

inline void copy_into(const window& served, std::byte* bounce, const remainder& rest) {
  std::memcpy(bounce + served.skip_bytes, rest.buffer, served.used_bytes);
}

inline void advance(remainder& rest, const window& served) {
  rest.position += served.used_bytes;
  rest.length_bytes -= served.used_bytes;
  rest.buffer += served.used_bytes;
}

}  // namespace far::backend
