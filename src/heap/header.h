// The header in front of each object below a page: its owner, its size, and a lock.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/backoff.h"
#include "base/units.h"
#include "far/detail/word.h"

namespace far::heap {

using owner_word = std::atomic<std::uint64_t>;

inline constexpr std::size_t header_bytes = 8;
// The first unit of an object holds its header in the second half, so the object itself is aligned to a unit. The first
// half belongs to the object before it.
inline constexpr std::size_t largest_small_bytes = 4096 - 16;

// Where the first object of a page with such an alignment can begin.
[[nodiscard]] constexpr std::size_t first_place(std::size_t alignment) {
  return alignment < detail::unit_bytes ? detail::unit_bytes : alignment;
}
// Whether such an object shares its page with others; otherwise it has pages of its own.
[[nodiscard]] constexpr bool fits_a_page(std::size_t bytes, std::size_t alignment) {
  return first_place(alignment) + bytes <= page_bytes;
}
static_assert(fits_a_page(largest_small_bytes, detail::unit_bytes));

// The units that an object of so many bytes takes, from the unit of its header on: its last may share half a unit with
// the next header, which is why a header lies in the second half.
[[nodiscard]] constexpr std::size_t units_for(std::size_t payload_bytes) {
  return (payload_bytes + header_bytes + detail::unit_bytes - 1) / detail::unit_bytes;
}

// A view of a header in a resident page that the caller holds.
//
//     bit   0      locked
//     bits  3-46   address of the owner's word, 0 once the object is dead
//     bits 47-59   bytes of the object
//     bit   60     the object has far pointers in it: its last 8 bytes name its type (far/detail/type.h)
//     bits 61-63   the alignment of the object, as a power of two above 16: wherever it moves, it has that
class header {
 public:
  static constexpr std::uint64_t locked = 1;
  static constexpr std::uint64_t owner_mask = ((std::uint64_t{1} << 47) - 1) & ~std::uint64_t{7};
  static constexpr unsigned bytes_shift = 47;
  static constexpr std::uint64_t bytes_mask = std::uint64_t{0x1fff} << bytes_shift;
  static constexpr std::uint64_t has_pointers = std::uint64_t{1} << 60;
  static constexpr unsigned alignment_shift = 61;

  [[nodiscard]] static header at(std::uintptr_t object) {
    return header(reinterpret_cast<std::atomic<std::uint64_t>*>(object - header_bytes));
  }
  [[nodiscard]] static std::uint64_t make(const owner_word& owner, std::size_t bytes, bool pointers,
                                          std::size_t alignment) {
    const auto exponent = static_cast<unsigned>(std::countr_zero(alignment / detail::unit_bytes));
    return reinterpret_cast<std::uintptr_t>(&owner) | std::uint64_t{bytes} << bytes_shift |
           (pointers ? has_pointers : 0) | std::uint64_t{exponent} << alignment_shift;
  }

  void store(std::uint64_t value) { at_->store(value, std::memory_order_release); }
  [[nodiscard]] std::uint64_t load() const { return at_->load(std::memory_order_acquire); }

  // For a few instructions. Returns the value without the lock's bit. Taken by the evacuator, and by a thread that
  // moves or destroys the pointer.
  [[nodiscard]] std::uint64_t lock() {
    backoff waiting;
    while (true) {
      std::uint64_t value = at_->load(std::memory_order_relaxed) & ~locked;
      if (at_->compare_exchange_weak(value, value | locked, std::memory_order_acquire)) return value;
      waiting.pause();
    }
  }
  void unlock(std::uint64_t value) { at_->store(value & ~locked, std::memory_order_release); }

  [[nodiscard]] static owner_word* owner(std::uint64_t value) {
    return reinterpret_cast<owner_word*>(value & owner_mask);
  }
  [[nodiscard]] static std::size_t bytes(std::uint64_t value) { return (value & bytes_mask) >> bytes_shift; }
  [[nodiscard]] static std::size_t alignment(std::uint64_t value) {
    return detail::unit_bytes << (value >> alignment_shift);
  }

 private:
  explicit header(std::atomic<std::uint64_t>* at) : at_(at) {}
  std::atomic<std::uint64_t>* at_;
};

}  // namespace far::heap
