// The word of a far pointer: where its object is, how large it is, and what is being done with it (docs/heap.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace far::detail {

// Objects are aligned to a unit and take whole units, their header included.
inline constexpr std::size_t unit_bytes = 16;

// A value; the pointer holds the atomic copy. 0 is null.
//
//     bits  0-3   0
//     bits  4-46  address
//     bit  47     huge: whole pages of its own, never moved
//     bit  48     moving: the evacuator copies it
//     bit  49     fetching: somebody brings it in over the object path
//     bit  50     idle: not dereferenced since the evacuator last looked
//     bit  51     stale: the object's header does not name this word
//     bits 52-60  size in units, header included; 0 for a huge object
//     bits 61-63  0
namespace word {

inline constexpr std::uint64_t address_mask = ((std::uint64_t{1} << 47) - 1) & ~std::uint64_t{0xf};
inline constexpr std::uint64_t huge = std::uint64_t{1} << 47;
inline constexpr std::uint64_t moving = std::uint64_t{1} << 48;
inline constexpr std::uint64_t fetching = std::uint64_t{1} << 49;
inline constexpr std::uint64_t idle = std::uint64_t{1} << 50;
inline constexpr std::uint64_t stale = std::uint64_t{1} << 51;
inline constexpr unsigned size_shift = 52;
inline constexpr std::uint64_t size_mask = std::uint64_t{0x1ff} << size_shift;

[[nodiscard]] constexpr std::uintptr_t address(std::uint64_t value) {
  return value & address_mask;
}
[[nodiscard]] constexpr std::size_t units(std::uint64_t value) {
  return (value & size_mask) >> size_shift;
}
// Those that ask for something to be done before a dereference.
inline constexpr std::uint64_t flags = moving | fetching | idle | stale;
inline constexpr unsigned page_shift = 12;
// The page that the object begins in, by its number (address / page size).
[[nodiscard]] constexpr std::uint64_t page(std::uint64_t value) {
  return address(value) >> page_shift;
}
// Whether it names a small object, and no flag asks for anything.
[[nodiscard]] constexpr bool is_plain(std::uint64_t value) {
  return ((value - 1) & (flags | huge)) == 0;  // 0 becomes all ones; others end in zeros
}

}  // namespace word
}  // namespace far::detail
