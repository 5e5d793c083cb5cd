// The entries of a far::hash_map that are leaving local memory: noted by a handler, which must neither wait nor
// allocate (far/tag.h), and read by the next call that changes the map.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "far/detail/hash_shard.h"

namespace far::detail {

// Any number of threads note and take. Keeps the latest 16384: entries whose notes are overwritten stay in the map.
class left_entries {
 public:
  void note(hashed key) noexcept {
    for (std::uint64_t bits = key.bits() | is_noted; bits != 0;) {
      const std::size_t at = noted_.fetch_add(1, std::memory_order_relaxed);
      std::atomic<std::uint64_t>& place = notes_[at % notes_.size()];
      place.store(bits, std::memory_order_seq_cst);
      // Somebody may have looked there before the note was. Either this is seen here, or the note there.
      if (taken_.load(std::memory_order_seq_cst) <= at) return;
      bits = place.exchange(0, std::memory_order_relaxed);
    }
  }
  [[nodiscard]] bool has_any() const noexcept {
    return noted_.load(std::memory_order_relaxed) != taken_.load(std::memory_order_relaxed);
  }
  // Calls use(hashed) for each note, which no other thread then gets.
  template <typename Use>
  void take_all(Use use) {
    std::size_t at = taken_.load(std::memory_order_acquire);
    std::size_t end = 0;
    do {
      end = noted_.load(std::memory_order_relaxed);
    } while (!taken_.compare_exchange_weak(at, end, std::memory_order_seq_cst, std::memory_order_acquire));
    if (end - at > notes_.size()) at = end - notes_.size();
    for (; at != end; ++at) {
      const std::uint64_t bits = notes_[at % notes_.size()].exchange(0, std::memory_order_seq_cst);
      if (bits != 0) use(hashed::of_bits(bits));
    }
  }

 private:
  // A bit that chooses neither a shard nor a fingerprint.
  static constexpr std::uint64_t is_noted = 1;

  alignas(64) std::atomic<std::size_t> noted_{0};
  alignas(64) std::atomic<std::size_t> taken_{0};
  std::array<std::atomic<std::uint64_t>, 16384> notes_{};
};

}  // namespace far::detail
