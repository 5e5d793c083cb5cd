// The header in front of each object below a page: its owner, its size, its kind, and a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/backoff.h"
#include "base/units.h"
#include "far/detail/word.h"
#include "heap/object_types.h"

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
//     bit 0          locked
//     bits 1 to 2    the highest bits of its kind (object_types.h), which it keeps wherever it moves
//     bits 3 to 46   address of the owner's word, 0 once the object is dead
//     bits 47 to 58  bytes of the object
//     bits 59 to 63  the other bits of its kind
class header {
 public:
  static constexpr std::uint64_t locked = 1;
  static constexpr std::uint64_t owner_mask = ((std::uint64_t{1} << 47) - 1) & ~std::uint64_t{7};
  static constexpr unsigned bytes_shift = 47;
  static constexpr std::uint64_t bytes_mask = std::uint64_t{0xfff} << bytes_shift;
  static_assert(largest_small_bytes <= bytes_mask >> bytes_shift);

  [[nodiscard]] static header at(std::uintptr_t object) {
    return header(reinterpret_cast<std::atomic<std::uint64_t>*>(object - header_bytes));
  }
  [[nodiscard]] static std::uint64_t make(const owner_word& owner, std::size_t bytes, object_kind kind) {
    const std::uint64_t whole_kind = kind;
    return reinterpret_cast<std::uintptr_t>(&owner) | std::uint64_t{bytes} << bytes_shift |
           whole_kind << low_kind_shift | whole_kind >> low_kind_bits << high_kind_shift;
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
  [[nodiscard]] static object_kind kind(std::uint64_t value) {
    return static_cast<object_kind>(value >> low_kind_shift | (value >> high_kind_shift & high_kind_mask)
                                                                  << low_kind_bits);
  }
  // Without what names its type.
  [[nodiscard]] static std::size_t payload_bytes(std::uint64_t value) {
    return bytes(value) - bytes_of_type(kind(value));
  }

 private:
  static constexpr unsigned low_kind_bits = 5;
  static constexpr unsigned low_kind_shift = 64 - low_kind_bits;
  static constexpr unsigned high_kind_shift = 1;
  static constexpr std::uint64_t high_kind_mask = (1u << (kind_bits - low_kind_bits)) - 1;
  static_assert((high_kind_mask << high_kind_shift | locked) < 8, "below the owner's address");

  explicit header(std::atomic<std::uint64_t>* at) : at_(at) {}
  std::atomic<std::uint64_t>* at_;
};

}  // namespace far::heap
