// The answers about groups of a page's numbers (page_reduction.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/page_reduction.h"

namespace far {

// Requires: as find(); has_groups(); `to` is zeros.
void find_groups(const reduction& how, std::span<const std::byte> numbers, const std::uint8_t* groups, std::byte* to);

}  // namespace far
