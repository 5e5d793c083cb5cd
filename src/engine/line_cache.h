// Copies of lines of Remote pages in local memory, for programs that read small objects here and there: an object comes
// without its page. A line is a part of a page whose size is a power of two.
//
// A copy is never changed and never written back. It is found by the line's number and by the version of its page
// (page_checks::version), so a copy of other bytes than the page has now is not found: nothing has to be told of a page
// that comes in, is written to, or is discarded. What nobody finds any more leaves when its room is wanted.
//
// Seven copies share a set. It is a sequence lock: readers hold nothing, look again when they have read, and find
// nothing if something has changed meanwhile. So a signal handler may interrupt a reader, jump out of it, or fork.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/spin_lock.h"

namespace far::engine {

class line_cache {
 public:
  static constexpr std::size_t least_line_bytes = 64;
  static constexpr std::size_t most_line_bytes = 512;  // what a read brings (page_checks::piece_bytes)
  [[nodiscard]] static constexpr bool is_line_size(std::size_t bytes) {
    return std::has_single_bit(bytes) && bytes >= least_line_bytes && bytes <= most_line_bytes;
  }

  struct name {
    std::uint64_t line;  // its address, divided by the size of a line; not 0
    std::uint64_t version;
  };

  // Reserves addresses for `most_bytes`. It holds nothing before fit(). Requires: a power of two within the limits.
  line_cache(std::size_t line_bytes, std::size_t most_bytes);
  ~line_cache();
  line_cache(const line_cache&) = delete;
  line_cache& operator=(const line_cache&) = delete;

  [[nodiscard]] std::size_t line_bytes() const { return line_bytes_; }
  [[nodiscard]] std::size_t most_bytes() const { return most_bytes_; }

  // Uses up to so many bytes from now on, and returns how many. One call at a time. Requires: as put().
  std::size_t fit(std::size_t bytes);

  [[nodiscard]] bool contains(const name& wanted) const;
  // Copies a part of the line, of at most 8 bytes. Returns false, and has copied nothing, if it is not there.
  [[nodiscard]] bool read(const name& wanted, std::size_t offset, std::size_t bytes, std::byte* to);
  // Requires: no signal handler can run on this thread meanwhile.
  void put(const name& added, const std::byte* bytes);

  // In the child of a fork, where writers may have stayed behind: forgets everything. fit() comes next.
  void restart_in_child();

 private:
  static constexpr std::size_t ways = 7;
  struct set {
    std::atomic<std::uint32_t> sequence;  // odd: being changed
    std::atomic<std::uint8_t> used;       // a bit for each copy that was found since the hand came by
    std::uint8_t hand;
    std::array<std::atomic<std::uint64_t>, ways> lines;  // 0: none
    std::array<std::atomic<std::uint64_t>, ways> versions;
  };
  static constexpr std::size_t header_bytes = 128;
  static_assert(sizeof(set) <= header_bytes);
  using word = std::atomic<std::uint64_t>;  // of a copy

  [[nodiscard]] std::size_t set_bytes() const { return header_bytes + ways * line_bytes_; }
  [[nodiscard]] set& at(std::size_t index) const { return *reinterpret_cast<set*>(memory_ + index * set_bytes()); }
  [[nodiscard]] word* words_of(set& of, std::size_t way) const {
    return reinterpret_cast<word*>(reinterpret_cast<std::byte*>(&of) + header_bytes + way * line_bytes_);
  }
  [[nodiscard]] static std::size_t index_of(std::uint64_t line, std::size_t sets);
  [[nodiscard]] static std::size_t find(const set& in, const name& wanted);
  [[nodiscard]] static std::size_t victim(set& in, std::uint64_t line);
  template <typename Body>
  [[nodiscard]] bool look(const name& wanted, Body body) const;
  void wipe(std::size_t index);

  // Of the sets whose index has the same remainder. Apart from the sets, whose memory comes and goes.
  struct alignas(64) writers {
    spin_lock lock;
  };
  static constexpr std::size_t writer_locks = 16;

  const std::size_t line_bytes_;
  const std::size_t most_bytes_;
  std::byte* const memory_;
  std::atomic<std::size_t> sets_{0};
  // How often memory of sets was given back: a reader that sees none of it has read what was put there.
  std::atomic<std::uint64_t> releases_{0};
  std::array<writers, writer_locks> writers_;
};

}  // namespace far::engine
