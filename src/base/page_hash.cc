#include "base/page_hash.h"

#include <sys/auxv.h>
#include <sys/random.h>

#include <bit>
#include <cstring>

#include "base/xxh3.h"

namespace far {
namespace {

// The sources of the secret: random bytes of the kernel, and those that every process gets at its start.
struct entropy {
  std::array<std::uint64_t, 4> drawn{};
  std::array<std::uint64_t, 2> of_start{};
};

entropy gather() noexcept {
  entropy all;
  // Does not wait for a kernel that has just booted: missing bytes stay zero.
  static_cast<void>(!getrandom(all.drawn.data(), sizeof all.drawn, GRND_NONBLOCK));
  if (const auto* const start = std::bit_cast<const void*>(getauxval(AT_RANDOM)); start != nullptr) {
    std::memcpy(all.of_start.data(), start, sizeof all.of_start);
  }
  return all;
}

}  // namespace

page_hasher::page_hasher() noexcept {
  entropy all = gather();
  for (std::size_t i = 0; i < secret_.size(); ++i) {
    all.drawn[0] += i + 1;
    secret_[i] = fastest_xxh3().hash_64(&all, sizeof all);
  }
}

page_hasher::page_hasher(std::uint64_t seed) noexcept {
  for (std::uint64_t& word : secret_) {
    ++seed;
    word = fastest_xxh3().hash_64(&seed, sizeof seed);
  }
}

page_hasher::page_hasher(std::span<const std::byte, secret_bytes> secret) noexcept {
  std::memcpy(secret_.data(), secret.data(), secret_bytes);
}

page_hash page_hasher::operator()(const std::byte* bytes, std::size_t length) const noexcept {
  return fastest_xxh3().hash_64_with_secret(bytes, length, secret_.data(), secret_bytes);
}

std::uint64_t hash_of_pieces(const piece_hashes& pieces) noexcept {
  return fastest_xxh3().hash_64(pieces.data(), sizeof pieces);
}

std::uint64_t hash_of_pieces(const page_hasher& hash, const std::byte* page) noexcept {
  piece_hashes found;
  for (std::size_t i = 0; i < found.size(); ++i) {
    found[i] = static_cast<std::uint32_t>(hash(page + i * hashed_piece_bytes, hashed_piece_bytes));
  }
  return hash_of_pieces(found);
}

}  // namespace far
