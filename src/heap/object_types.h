// What a header says of an object beside its owner and its size: how it is aligned, and, of one with far pointers, its
// type. That is a number of seven bits.
//
//     0 to 7      no far pointers; aligned to 16, 32, ... 2048
//     8 to 15     far pointers; the last 8 bytes of the object name its type; aligned likewise
//     16 to 127   far pointers, of a type that has this number in this library's table
//
// Most programs have far fewer types than there are numbers. Each type gets one with its first object, for good.
#pragma once

#include <cstddef>
#include <cstdint>

#include "far/detail/type.h"
#include "far/detail/word.h"

namespace far::heap {

using object_kind = std::uint8_t;
inline constexpr object_kind kind_bits = 7;
inline constexpr unsigned alignments = 8;
inline constexpr std::size_t most_small_alignment = detail::unit_bytes << (alignments - 1);

// `type`: null if there are no far pointers. `alignment`: a power of two, 16 to 2048.
[[nodiscard]] object_kind kind_of(const detail::type_of_object* type, std::size_t alignment);

[[nodiscard]] std::size_t alignment_of(object_kind kind) noexcept;

[[nodiscard]] constexpr bool has_pointers(object_kind kind) noexcept {
  return kind >= alignments;
}
// Behind the bytes of the object itself.
[[nodiscard]] constexpr std::size_t bytes_of_type(object_kind kind) noexcept {
  return kind / alignments == 1 ? sizeof(const detail::type_of_object*) : 0;
}

// The bytes that such an object takes in all.
[[nodiscard]] constexpr std::size_t bytes_with_type(std::size_t bytes, object_kind kind) noexcept {
  const std::size_t type_bytes = bytes_of_type(kind);
  return type_bytes == 0 ? bytes : (bytes + type_bytes - 1) / type_bytes * type_bytes + type_bytes;
}

// Requires: has_pointers(kind). `end`: of the object, with all that it takes.
[[nodiscard]] const detail::type_of_object& type_of(object_kind kind, const std::byte* end) noexcept;

}  // namespace far::heap
