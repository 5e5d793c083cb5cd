// The slots of a far tier to which the child of a fork still refers: a table in memory that parent and child share.
//
// The parent makes it at the fork. Every slot in use then counts as referred to until the child has claimed its own.
// From then on the child removes slots one by one as it frees them. One bit a slot; memory is filled only as far as the
// table is used.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "backend/backend.h"

namespace far::backend {

class slot_share {
 public:
  slot_share() = default;  // of a child that refers to nothing
  // For the slots below `end`. Without memory for the table, all of them count as referred to for ever.
  [[nodiscard]] static slot_share make(slot_id end);
  ~slot_share() { close(); }
  slot_share(slot_share&& other) noexcept { swap(other); }
  slot_share& operator=(slot_share&& other) noexcept {
    close();
    swap(other);
    return *this;
  }

  // For the parent. Whether the child refers to the slot; for any thread.
  [[nodiscard]] bool holds(slot_id slot) const;
  // Whether the child refers to nothing any more.
  [[nodiscard]] bool is_empty() const;
  // Changes whenever the child has let go of something.
  [[nodiscard]] std::uint64_t released() const;
  // Whether the child's process has ended without children of its own, judging by its number. For parents that have no
  // better way to know.
  [[nodiscard]] bool owner_has_ended() const;

  // For the child: claims a slot that it refers to, then says that these were all.
  void claim(slot_id slot);
  void close_claims();
  void release(slot_id slot);
  // The child forks. Its children refer to the same slots, even after it has ended.
  void note_heirs();

 private:
  struct header {
    std::atomic<bool> claimed;
    std::atomic<bool> has_heirs;
    std::atomic<pid_t> owner;
    std::atomic<std::uint64_t> held;
    std::atomic<std::uint64_t> released;
  };
  static constexpr unsigned word_bits = 64;

  void close() noexcept;
  void swap(slot_share& other) noexcept {
    std::swap(shared_, other.shared_);
    std::swap(end_, other.end_);
    std::swap(bytes_, other.bytes_);
  }
  [[nodiscard]] std::atomic<std::uint64_t>& word_of(slot_id slot) const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(shared_ + 1)[slot / word_bits];
  }
  [[nodiscard]] static std::uint64_t bit_of(slot_id slot) { return std::uint64_t{1} << slot % word_bits; }

  header* shared_ = nullptr;  // followed by the bits
  slot_id end_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace far::backend
