// From a type of numbers that is known only when the program runs to one that the compiler knows.
#pragma once

#include <cstdint>

#include "far/detail/reduction.h"

namespace far {

// Calls `with(T{})` with a number of that type.
template <typename With>
auto with_number_type(detail::number_type type, With with) {
  using detail::number_type;
  switch (type) {
    case number_type::int8: return with(std::int8_t{});
    case number_type::int16: return with(std::int16_t{});
    case number_type::int32: return with(std::int32_t{});
    case number_type::int64: return with(std::int64_t{});
    case number_type::uint8: return with(std::uint8_t{});
    case number_type::uint16: return with(std::uint16_t{});
    case number_type::uint32: return with(std::uint32_t{});
    case number_type::uint64: return with(std::uint64_t{});
    case number_type::float32: return with(float{});
    case number_type::float64: break;
  }
  return with(double{});
}

}  // namespace far
