// The hash of every Remote page, kept in local memory. Bytes from the far tier must have this hash; otherwise they are
// not used (docs/decisions/0020-checksums.md).
//
// The hash is kept by page and not by slot: a slot belongs to one page at a time, and after a fork parent and child may
// have different bytes for the same page, each with a table of its own.
//
// A page has one hash of 64 bits; or, where parts of pages are read (object_reader.h), one of 32 bits for each of its
// eight pieces, so that a part can be checked without the rest. That is enough for bytes which are nearly always right,
// and too little to tell whether a suspect (residency.h) was written: a write to one piece of it would be lost once in
// 2^32 times. So while a suspect is Resident, a hash of 64 bits of all its bytes takes the place of two of the pieces'.
// They are computed anew when it leaves. A check of such a part meanwhile says that it is wrong, and the page is not
// Remote: then the part is of no use anyway.
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

  // The page comes in as a suspect, with these bytes, which are those that it left with. Requires: the caller owns it
  // in Fetching.
  void watch(page_id page, const std::byte* bytes) {
    if (by_pieces()) at(page, 0).store(hash_(bytes), std::memory_order_relaxed);
  }
  // Whether a suspect has the bytes that it came with. Of one that was not watched it says no, where there are hashes
  // of pieces. Requires: the caller owns it in Evicting.
  [[nodiscard]] bool is_unchanged(page_id page, const std::byte* bytes) const {
    return at(page, 0).load(std::memory_order_relaxed) == hash_(bytes);
  }

  // It has, and leaves as it came. Requires: as is_unchanged().
  void keep(page_id page, const std::byte* bytes) {
    if (by_pieces()) at(page, 0).store(word_of(bytes, 0), std::memory_order_relaxed);
  }

  // The page leaves with these bytes, if it does. Requires: the caller owns the page in Evicting.
  void note(page_id page, const std::byte* bytes) {
    for (std::size_t i = 0; i < words_a_page_; ++i) at(page, i).store(word_of(bytes, i), std::memory_order_relaxed);
  }

  // Whether the page left with these bytes. Requires: the caller owns the page in Fetching, or reads its word again
  // afterwards.
  [[nodiscard]] bool fit(page_id page, const std::byte* bytes) const {
    bool same = true;
    for (std::size_t i = 0; i < words_a_page_; ++i) {
      same &= word_of(bytes, i) == at(page, i).load(std::memory_order_relaxed);
    }
    return same;
  }

  // The same for some of its pieces, of which these are the bytes. Requires: by_pieces().
  [[nodiscard]] bool fit(page_id page, std::size_t first_piece, std::size_t count, const std::byte* bytes) const {
    bool same = true;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t piece = first_piece + i;
      const std::uint64_t word = at(page, piece / 2).load(std::memory_order_relaxed);
      same &= hash_of_piece(bytes + i * piece_bytes) == static_cast<std::uint32_t>(word >> piece % 2 * 32);
    }
    return same;
  }

  // The same for all of them, of which hash_of_pieces() with hasher() is `all_pieces`. Requires: by_pieces().
  [[nodiscard]] bool fits(page_id page, std::uint64_t all_pieces) const { return all_pieces_of(page) == all_pieces; }
  [[nodiscard]] std::uint64_t all_pieces_of(page_id page) const {
    piece_hashes expected;
    for (std::size_t i = 0; i < pieces_a_page; ++i) {
      expected[i] = static_cast<std::uint32_t>(at(page, i / 2).load(std::memory_order_relaxed) >> i % 2 * 32);
    }
    return hash_of_pieces(expected);
  }
  [[nodiscard]] const page_hasher& hasher() const { return hash_; }

  // Of its hashes and its slot: changed bytes go to a fresh slot, and if that is one that the page had before, they
  // have other hashes than they had then.
  [[nodiscard]] std::uint64_t version(page_id page, std::uint64_t slot) const {
    std::uint64_t mixed = (slot + 1) * 0x9e3779b97f4a7c15;
    for (std::size_t i = 0; i < words_a_page_; ++i) {
      mixed = (mixed ^ mixed >> 29 ^ at(page, i).load(std::memory_order_relaxed)) * 0xbf58476d1ce4e5b9;
    }
    return mixed ^ mixed >> 32;
  }

  // For a page that changes its address. Requires: the caller owns it in Fetching.
  using check = std::array<std::uint64_t, pieces_a_page / 2>;
  [[nodiscard]] check hash_of(page_id page) const {
    check found{};
    for (std::size_t i = 0; i < words_a_page_; ++i) found[i] = at(page, i).load(std::memory_order_relaxed);
    return found;
  }
  void set(page_id page, const check& value) {
    for (std::size_t i = 0; i < words_a_page_; ++i) at(page, i).store(value[i], std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t most_words = pieces_a_page / 2;

  [[nodiscard]] std::atomic<std::uint64_t>& at(page_id page, std::size_t word) const {
    return words_[page * words_a_page_ + word];
  }
  [[nodiscard]] std::uint32_t hash_of_piece(const std::byte* bytes) const {
    return static_cast<std::uint32_t>(hash_(bytes, piece_bytes));
  }
  [[nodiscard]] std::uint64_t word_of(const std::byte* page, std::size_t word) const {
    if (!by_pieces()) return hash_(page);
    const std::byte* const first = page + 2 * word * piece_bytes;
    return hash_of_piece(first) | std::uint64_t{hash_of_piece(first + piece_bytes)} << 32;
  }

  const page_hasher hash_;
  const std::size_t words_a_page_;
  const std::size_t bytes_;
  std::atomic<std::uint64_t>* const words_;
};

}  // namespace far::engine
