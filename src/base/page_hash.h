// A 64-bit hash of a page, or of a piece of one. It shows whether bytes have changed: whether a page that might have
// been written was, and whether the far tier returned the bytes that it got.
//
// The hash depends on a secret that each process draws, so nobody can prepare two different pages with the same hash;
// they collide only by chance, once in 2^64 pairs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace far {

using page_hash = std::uint64_t;

class page_hasher {
 public:
  // Draws the secret. Never fails: without random bytes from the kernel, those that this process got at its start must
  // do.
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
