#include "far/detail/column_code.h"

#include <cstdint>
#include <span>

namespace far {

template void column::append_numbers(std::span<const std::int8_t>);
template void column::append_numbers(std::span<const std::int16_t>);
template void column::append_numbers(std::span<const std::int32_t>);
template void column::append_numbers(std::span<const std::int64_t>);
template void column::append_numbers(std::span<const float>);
template void column::append_numbers(std::span<const double>);
template void column::append_numbers(std::span<const std::uint8_t>);

}  // namespace far
