// The word of a far pointer: the place and size of its object, and what is being done with it (docs/heap.md).
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
//     bit   2      idle: not dereferenced since the evacuator last looked
//     bit   3      stale: the object's header does not name this word
//     bit   4      huge: whole pages of its own, never moved
//     bits  5-6    0
//     bit   7      small: every object but huge ones
//     bits  8-16   size in units, header included; 0 for a huge object
//     bits 17-63   address; the first four are 0
//
// The lowest byte alone says whether a dereference has nothing to do first (is_plain), and one shift yields the
// address, so a dereference needs no mask.
namespace word {

inline constexpr std::uint64_t moving = 1u << 0;
inline constexpr std::uint64_t fetching = 1u << 1;
inline constexpr std::uint64_t idle = 1u << 2;
inline constexpr std::uint64_t stale = 1u << 3;
inline constexpr std::uint64_t huge = 1u << 4;
inline constexpr std::uint64_t small = 1u << 7;
// All of them make a dereference do something first.
inline constexpr std::uint64_t flags = moving | fetching | idle | stale;

inline constexpr unsigned size_shift = 8;
inline constexpr std::uint64_t size_mask = std::uint64_t{0x1ff} << size_shift;
inline constexpr unsigned address_shift = 17;
inline constexpr unsigned page_shift = 12;

[[nodiscard]] constexpr std::uint64_t of_small(std::uintptr_t address, std::size_t units) {
  return std::uint64_t{address} << address_shift | std::uint64_t{units} << size_shift | small;
}
[[nodiscard]] constexpr std::uint64_t of_huge(std::uintptr_t address) {
  return std::uint64_t{address} << address_shift | huge;
}

[[nodiscard]] constexpr std::uintptr_t address(std::uint64_t value) {
  return value >> address_shift;
}
// The page that the object begins in, by its number (address / page size).
[[nodiscard]] constexpr std::uint64_t page(std::uint64_t value) {
  return value >> (address_shift + page_shift);
}
[[nodiscard]] constexpr std::size_t units(std::uint64_t value) {
  return (value & size_mask) >> size_shift;
}
[[nodiscard]] constexpr std::uint64_t with_address(std::uint64_t value, std::uintptr_t address) {
  return std::uint64_t{address} << address_shift | (value & ((std::uint64_t{1} << address_shift) - 1));
}
// Whether it refers to a small object, and none of these flags is set.
[[nodiscard]] constexpr bool is_plain(std::uint64_t value) {
  return (value & 0xff) == small;
}

}  // namespace word
}  // namespace far::detail
