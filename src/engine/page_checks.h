// The hash of every Remote page, kept in local memory. Bytes from the far tier must have this hash; otherwise they are
// not used (docs/decisions/0020-checksums.md).
//
// The hash is kept by page and not by slot: a slot belongs to one page at a time, and after a fork parent and child may
// have different bytes for the same page, each with a table of its own.
//
// A page has one hash of 64 bits. It also tells whether a suspect (residency.h) was written, and it is the version of
// the page for copies of its parts (line_cache.h). Where parts of pages are read (object_reader.h), each of the eight
// pieces has one of 32 bits besides, so that a part can be checked without the rest. That is enough for bytes which are
// nearly always right, and too little to tell contents apart: of two that differ in one piece, once in 2^32 times.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/page_hash.h"
#include "engine/residency.h"
#include "platform/local_memory.h"

namespace far::engine {

class page_checks {
 public:
  static constexpr std::size_t piece_bytes = hashed_piece_bytes;
  static constexpr std::size_t pieces_a_page = hashed_pieces;

  page_checks(std::uint64_t pages, bool by_pieces, const page_hasher& hash = page_hasher())
      : hash_(hash),
        words_a_page_(by_pieces ? most_words : 1),
        bytes_(pages * words_a_page_ * sizeof(std::uint64_t)),
        words_(reinterpret_cast<std::atomic<std::uint64_t>*>(platform::map_local(bytes_))) {}
  ~page_checks() { platform::unmap_local(reinterpret_cast<std::byte*>(words_), bytes_); }
  page_checks(const page_checks&) = delete;
  page_checks& operator=(const page_checks&) = delete;

  [[nodiscard]] static constexpr std::size_t bytes_a_page(bool by_pieces) {
    return (by_pieces ? most_words : 1) * sizeof(std::uint64_t);
  }
  [[nodiscard]] bool by_pieces() const { return words_a_page_ > 1; }

  // Whether the page has the bytes that it left with the last time. Requires: the caller owns it in Evicting.
  [[nodiscard]] bool is_unchanged(page_id page, const std::byte* bytes) const {
    return at(page, 0).load(std::memory_order_relaxed) == hash_all(bytes, nullptr);
  }

  // The page leaves with these bytes, if it does. Requires: the caller owns the page in Evicting.
  void note(page_id page, const std::byte* bytes) {
    piece_hashes pieces;
    const page_hash all = hash_all(bytes, &pieces);
    for (std::size_t i = 1; i < words_a_page_; ++i) {
      const std::uint64_t word = pieces[2 * i - 2] | std::uint64_t{pieces[2 * i - 1]} << 32;
      at(page, i).store(word, std::memory_order_relaxed);
    }
    at(page, 0).store(all, std::memory_order_release);
  }

  // Whether the page left with these bytes. Requires: the caller owns the page in Fetching, or reads its word again
  // afterwards.
  [[nodiscard]] bool fit(page_id page, const std::byte* bytes) const {
    return hash_all(bytes, nullptr) == at(page, 0).load(std::memory_order_relaxed);
  }

  // The same for some of its pieces, of which these are the bytes. Requires: by_pieces().
  [[nodiscard]] bool fit(page_id page, std::size_t first_piece, std::size_t count, const std::byte* bytes) const {
    bool same = true;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t piece = first_piece + i;
      const std::uint64_t word = at(page, 1 + piece / 2).load(std::memory_order_relaxed);
      same &= hash_of_piece(bytes + i * piece_bytes) == static_cast<std::uint32_t>(word >> piece % 2 * 32);
    }
    return same;
  }

  // The same for all of them, of which hash_of_pieces() with hasher() is `all_pieces`. Requires: by_pieces().
  [[nodiscard]] bool fits(page_id page, std::uint64_t all_pieces) const { return all_pieces_of(page) == all_pieces; }
  [[nodiscard]] std::uint64_t all_pieces_of(page_id page) const {
    piece_hashes expected;
    for (std::size_t i = 0; i < pieces_a_page; ++i) {
      expected[i] = static_cast<std::uint32_t>(at(page, 1 + i / 2).load(std::memory_order_relaxed) >> i % 2 * 32);
    }
    return hash_of_pieces(expected);
  }
  [[nodiscard]] const page_hasher& hasher() const { return hash_; }

  // A name for the bytes that the page left with. Other bytes have the same one once in 2^64 pairs. In order: what is
  // read of the page's word afterwards is not older.
  [[nodiscard]] std::uint64_t version(page_id page) const { return at(page, 0).load(std::memory_order_acquire); }

  // For a page that changes its address. Requires: the caller owns it in Fetching.
  using check = std::array<std::uint64_t, 1 + pieces_a_page / 2>;
  [[nodiscard]] check hash_of(page_id page) const {
    check found{};
    for (std::size_t i = 0; i < words_a_page_; ++i) found[i] = at(page, i).load(std::memory_order_relaxed);
    return found;
  }
  void set(page_id page, const check& value) {
    for (std::size_t i = 0; i < words_a_page_; ++i) at(page, i).store(value[i], std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t most_words = 1 + pieces_a_page / 2;

  [[nodiscard]] std::atomic<std::uint64_t>& at(page_id page, std::size_t word) const {
    return words_[page * words_a_page_ + word];
  }
  [[nodiscard]] std::uint32_t hash_of_piece(const std::byte* bytes) const {
    return static_cast<std::uint32_t>(hash_(bytes, piece_bytes));
  }
  // By pieces, it is put together from hashes of 64 bits of these; where a piece differs, so does the whole, unless
  // those collide. Otherwise there are no `pieces` to put out.
  [[nodiscard]] page_hash hash_all(const std::byte* bytes, piece_hashes* pieces) const {
    if (!by_pieces()) return hash_(bytes);
    page_hash all = 0;
    for (std::size_t i = 0; i < pieces_a_page; ++i) {
      const page_hash piece = hash_(bytes + i * piece_bytes, piece_bytes);
      if (pieces != nullptr) (*pieces)[i] = static_cast<std::uint32_t>(piece);
      all = (all ^ all >> 29 ^ piece) * 0xbf58476d1ce4e5b9;
    }
    return all ^ all >> 32;
  }

  const page_hasher hash_;
  const std::size_t words_a_page_;
  const std::size_t bytes_;
  std::atomic<std::uint64_t>* const words_;
};

}  // namespace far::engine
