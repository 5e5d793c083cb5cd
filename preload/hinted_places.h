// Hints of mmap at addresses outside the far heap, and which of them are followed.
//
// Most programs take whatever address they get. But a compiler that runs in the program and whose jumps reach 2 GiB
// needs memory near its own code: LuaJIT proposes a place, gives the memory back when it came elsewhere, and proposes
// another, thousands of times. So once a program has given back a small mapping because of its place, memory of that
// size is mapped where the program proposes it, and is native. Large mappings and reservations stay in the far heap:
// for the heaps of Go and of most JVMs the proposed place is only a preference, and all of it would be native. But a
// program that has given back reservations because of their place hundreds of times (the JVM's ZGC) has no other way.
// It has used none of them, and mapped nothing else in between: who does is an allocator that gives memory back.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace far::preload {

// Thread-safe and usable in signal handlers. Threads that try places at the same moment may need one try more.
class hinted_places {
 public:
  static constexpr std::size_t most_bytes = 2 * mib;

  static constexpr unsigned most_tries = 256;  // Go proposes 128 places for its reservations

  // The program proposed a place outside the far heap, and its mapping of `bytes` came to `address`.
  void came_elsewhere(const void* address, std::size_t bytes) noexcept {
    if (!is_small(bytes)) return;
    last_pages_.store(pages_in(bytes), std::memory_order_relaxed);
    last_address_.store(address, std::memory_order_relaxed);
  }

  // The same for a reservation.
  void reservation_came_elsewhere(const void* address, std::size_t bytes) noexcept {
    if (last_reservation_.load(std::memory_order_relaxed) != nullptr) mapped();  // the last one was kept
    last_reserved_pages_.store(pages_in(bytes), std::memory_order_relaxed);
    last_reservation_.store(address, std::memory_order_relaxed);
  }

  // Any other mapping of the program came to the far heap.
  void mapped() noexcept {
    if (follows_reservations()) return;
    last_reservation_.store(nullptr, std::memory_order_relaxed);
    tries_.store(0, std::memory_order_relaxed);
  }

  // The program maps something in this range, or makes it accessible.
  void used(const void* address, std::size_t bytes) noexcept {
    const auto first = reinterpret_cast<std::uintptr_t>(last_reservation_.load(std::memory_order_relaxed));
    if (first == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const std::size_t reserved_bytes = last_reserved_pages_.load(std::memory_order_relaxed) << page_shift;
    const bool overlaps = begin < first ? first - begin < bytes : begin - first < reserved_bytes;
    if (overlaps) mapped();
  }

  // The program has unmapped this range.
  void given_back(const void* address, std::size_t bytes) noexcept {
    if (address != nullptr && last_reservation_.load(std::memory_order_relaxed) == address &&
        last_reserved_pages_.load(std::memory_order_relaxed) == pages_in(bytes)) {
      last_reservation_.store(nullptr, std::memory_order_relaxed);
      tries_.fetch_add(1, std::memory_order_relaxed);
    }
    if (address == nullptr || last_address_.load(std::memory_order_relaxed) != address) return;
    const std::size_t pages = pages_in(bytes);
    if (!is_small(bytes) || last_pages_.load(std::memory_order_relaxed) != pages) return;
    last_address_.store(nullptr, std::memory_order_relaxed);
    followed_[(pages - 1) / 64].fetch_or(std::uint64_t{1} << (pages - 1) % 64, std::memory_order_relaxed);
  }

  // Whether a proposed place for so much memory is to be followed.
  [[nodiscard]] bool follows(std::size_t bytes) const noexcept {
    if (!is_small(bytes)) return false;
    const std::size_t index = pages_in(bytes) - 1;
    return (followed_[index / 64].load(std::memory_order_relaxed) >> index % 64 & 1) != 0;
  }

  // Whether places that are proposed for reservations are to be followed.
  [[nodiscard]] bool follows_reservations() const noexcept {
    return tries_.load(std::memory_order_relaxed) >= most_tries;
  }

 private:
  static bool is_small(std::size_t bytes) { return bytes > 0 && bytes <= most_bytes; }
  static std::size_t pages_in(std::size_t bytes) { return round_up(bytes, page_bytes) >> page_shift; }

  std::atomic<const void*> last_address_{nullptr};
  std::atomic<std::size_t> last_pages_{0};
  std::atomic<const void*> last_reservation_{nullptr};
  std::atomic<std::size_t> last_reserved_pages_{0};
  std::atomic<unsigned> tries_{0};
  std::array<std::atomic<std::uint64_t>, (most_bytes >> page_shift) / 64> followed_{};  // a bit for each size in pages
};

}  // namespace far::preload
