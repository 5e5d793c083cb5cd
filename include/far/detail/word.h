// The word of a far pointer: the place of its object, and what is being done with it (docs/heap.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace far::detail {

// Objects are aligned to a unit and take whole units, their header included.
inline constexpr std::size_t unit_bytes = 16;

// A value; the pointer holds the atomic copy. 0 is null.
//
//     bit   0      moving: the evacuator copies it
//     bit   1      fetching: somebody brings it in over the object path
//     bits  0-1    both: huge, an object with whole pages of its own, never moved, without other flags
//     bit   2      idle: not dereferenced since the evacuator last looked
//     bit   3      stale: the object's header does not name this word
//     bits  4-46   address, without its lowest four bits, which are 0
//     bits 47-63   0
//
// Without flags the word is the address itself: a dereference takes no step from one to the other
// (docs/decisions/0103-the-word-is-the-address.md).
namespace word {

inline constexpr std::uint64_t moving = 1u << 0;
inline constexpr std::uint64_t fetching = 1u << 1;
inline constexpr std::uint64_t idle = 1u << 2;
inline constexpr std::uint64_t stale = 1u << 3;
// All of them make a dereference do something first.
inline constexpr std::uint64_t flags = moving | fetching | idle | stale;
// Of a small object: somebody works on it. A huge one has both.
inline constexpr std::uint64_t busy = moving | fetching;

inline constexpr unsigned page_shift = 12;

[[nodiscard]] constexpr std::uint64_t of_small(std::uintptr_t address) {
  return address;
}
[[nodiscard]] constexpr std::uint64_t of_huge(std::uintptr_t address) {
  return address | busy;
}

[[nodiscard]] constexpr bool is_huge(std::uint64_t value) {
  return (value & busy) == busy;
}
// Of a small object.
[[nodiscard]] constexpr bool is_fetching(std::uint64_t value) {
  return (value & busy) == fetching;
}
[[nodiscard]] constexpr std::uintptr_t address(std::uint64_t value) {
  return value & ~flags;
}
// The page that the object begins in, by its number (address / page size).
[[nodiscard]] constexpr std::uint64_t page(std::uint64_t value) {
  return value >> page_shift;
}
[[nodiscard]] constexpr std::uint64_t with_address(std::uint64_t value, std::uintptr_t address) {
  return address | (value & flags);
}
// Whether it is null, or refers to a small object and has no flag.
[[nodiscard]] constexpr bool is_plain(std::uint64_t value) {
  return (value & flags) == 0;
}
// The address of the object of a plain word.
[[nodiscard]] constexpr std::uintptr_t plain_address(std::uint64_t value) {
  return value;
}

}  // namespace word
}  // namespace far::detail
