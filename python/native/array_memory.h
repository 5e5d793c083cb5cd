// Far memory for the data of arrays, one mapping of the far heap for each. Some freed mappings are kept for the next
// array of about the same size: a computation makes and drops arrays of one size again and again, and fresh pages cost
// a fault each.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_mutex.h"
#include "base/units.h"
#include "pager/pager.h"

namespace far::python {

// Smaller allocations come from the allocator that would have them without far memory, which caches small blocks; a
// mapping for each would cost more than what is done with it.
inline constexpr std::size_t far_from_bytes = 64 * kib;

// Any thread. Callers do not pass a size when they free memory, so sizes are kept here.
//
// Spares are in two places. Small ones are in a few slots, each a word that is taken and put with one atomic operation:
// the C library makes an array of 64 KiB in less time than a lock takes (docs/decisions/0089-spares-of-arrays.md).
// Those that the slots have no room for, and larger ones, are in a list under a lock.
class array_memory {
 public:
  explicit array_memory(pager::pager& far);
  ~array_memory();
  array_memory(const array_memory&) = delete;
  array_memory& operator=(const array_memory&) = delete;

  // Aligned to a page; nullptr when the far heap's addresses run out.
  enum class content : std::uint8_t { any, zeros };
  [[nodiscard]] void* take(std::size_t bytes, content wanted) noexcept;
  // Requires: `memory` came from here. It keeps its bytes, as many as there is room for, and may move. nullptr: nothing
  // has changed.
  [[nodiscard]] void* resize(void* memory, std::size_t bytes) noexcept;
  void release(void* memory) noexcept;

  // Called for every array that is freed, also for small ones.
  [[nodiscard]] bool owns(const void* memory) const noexcept {
    return reinterpret_cast<std::uintptr_t>(memory) - first_ < far_bytes_;
  }

  // Unmaps the spares: while pages are evicted, they would be written to the far tier for nothing.
  void drop_spares() noexcept;

  void lock_for_fork() noexcept FAR_ACQUIRE(lock_) { lock_.lock(); }
  void unlock_after_fork() noexcept FAR_RELEASE(lock_) { lock_.unlock(); }

 private:
  using mapping = std::span<std::byte>;  // whole pages

  // A mapping in one word: the number of its first page in the far heap, and how many it has. 0: none.
  using packed_mapping = std::uint64_t;
  static constexpr unsigned count_bits = 16;
  static constexpr std::size_t slot_count = 16;

  [[nodiscard]] packed_mapping pack(mapping one) const noexcept;
  [[nodiscard]] mapping unpack(packed_mapping one) const noexcept;
  [[nodiscard]] mapping take_from_slot(std::size_t bytes) noexcept;
  [[nodiscard]] mapping put_into_slot(mapping freed) noexcept;
  [[nodiscard]] mapping take_spare(std::size_t bytes) noexcept;
  void keep_spare(mapping freed) noexcept;
  [[nodiscard]] mapping map(std::size_t bytes) noexcept;
  [[nodiscard]] std::atomic<std::uint32_t>& pages_at(const void* memory) noexcept;
  void remember(mapping used) noexcept;
  [[nodiscard]] mapping forget(void* memory) noexcept;
  void unmap(mapping unused) noexcept;

  pager::pager& far_;
  const std::uintptr_t first_;  // of the far heap
  const std::uint64_t far_bytes_;
  const std::size_t most_spare_bytes_;  // in the list; a quarter as much in the slots
  const std::size_t most_slot_bytes_;   // of a mapping in a slot
  // For each page of the far heap: how many pages the array has that begins there; 0: none does.
  std::atomic<std::uint32_t>* const used_;
  alignas(64) std::array<std::atomic<packed_mapping>, slot_count> slots_{};
  std::atomic<unsigned> next_slot_{0};  // to be emptied when all are taken
  thread_mutex lock_;
  std::vector<mapping> spares_ FAR_GUARDED_BY(lock_);  // the oldest first
  std::size_t spare_bytes_ FAR_GUARDED_BY(lock_) = 0;
};

}  // namespace far::python
