// A 64-bit hash of a page, or of a piece of one, to find out whether its bytes are still those they were: whether a
// page that might have been written was, and whether the far tier returned what it was given.
//
// The hash depends on a secret that each process draws: bytes that somebody prepares, in order that two different pages
// look alike, look alike by chance only, once in 2^64 pairs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace far {

using page_hash = std::uint64_t;

class page_hasher {
 public:
  // Draws the secret. Never fails: where the kernel has no random bytes to give, those that it gave this process at its
  // start must do.
  page_hasher() noexcept;
  // For tests.
  explicit page_hasher(std::uint64_t seed) noexcept;

  // Requires: more than 240 bytes.
  [[nodiscard]] page_hash operator()(const std::byte* bytes, std::size_t length = page_bytes) const noexcept;

 private:
  static constexpr std::size_t secret_bytes = 192;
  std::array<std::uint64_t, secret_bytes / sizeof(std::uint64_t)> secret_;
};

}  // namespace far
