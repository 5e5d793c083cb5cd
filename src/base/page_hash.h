// A 64-bit hash of a page, or of a piece of one. It shows whether bytes have changed: whether a page that might have
// been written was, and whether the far tier returned the bytes that it got.
//
// The hash depends on a secret that each process draws, so nobody can prepare two different pages with the same hash;
// they collide only by chance, once in 2^64 pairs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

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
  // For a store of pages that computes something of them for the process that has drawn the secret.
  static constexpr std::size_t secret_bytes = 192;
  explicit page_hasher(std::span<const std::byte, secret_bytes> secret) noexcept;
  [[nodiscard]] std::span<const std::byte, secret_bytes> secret() const noexcept {
    return std::span<const std::byte, secret_bytes>(reinterpret_cast<const std::byte*>(secret_.data()), secret_bytes);
  }

  // Requires: more than 240 bytes.
  [[nodiscard]] page_hash operator()(const std::byte* bytes, std::size_t length = page_bytes) const noexcept;

 private:
  std::array<std::uint64_t, secret_bytes / sizeof(std::uint64_t)> secret_;
};

// Where parts of pages are read, each of these pieces of a page has a hash of its own, of 32 bits.
inline constexpr std::size_t hashed_piece_bytes = 512;
inline constexpr std::size_t hashed_pieces = page_bytes / hashed_piece_bytes;

// A number that tells of all of them at once.
using piece_hashes = std::array<std::uint32_t, hashed_pieces>;
[[nodiscard]] std::uint64_t hash_of_pieces(const piece_hashes& pieces) noexcept;
[[nodiscard]] std::uint64_t hash_of_pieces(const page_hasher& hash, const std::byte* page) noexcept;

}  // namespace far
