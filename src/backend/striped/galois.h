// Arithmetic on bytes as elements of GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1, as in RAID 6 and ISA-L.
//
// A product of a byte and a constant is the sum of two table entries, one for each half of the byte, and a shuffle
// looks up 16 or 32 of them at once (Plank, Greenan and Miller, "Screaming Fast Galois Field Arithmetic Using Intel
// SIMD Instructions", FAST 2013).
#pragma once

#include <cstddef>
#include <cstdint>

namespace far::backend::galois {

[[nodiscard]] std::uint8_t multiply(std::uint8_t a, std::uint8_t b);
// Requires: a != 0.
[[nodiscard]] std::uint8_t inverse(std::uint8_t a);
// 2 to the power of `exponent`.
[[nodiscard]] std::uint8_t power_of_two(unsigned exponent);

// into[i] += factor * from[i], for `count` bytes. Requires: they do not overlap.
void add_multiple(std::byte* into, const std::byte* from, std::uint8_t factor, std::size_t count);

}  // namespace far::backend::galois
