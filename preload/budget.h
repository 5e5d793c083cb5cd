// The budget that a user asks for: "512M", "25%", or nothing.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "platform/system_memory.h"

namespace far::preload {

// A size, or a percentage of memory.usable_bytes(), as a budget in whole pages. Errors (code EINVAL): not a size, a
// percentage outside of 0 to 100, less than pager::minimum_budget_bytes; each shows what to write.
[[nodiscard]] result<std::uint64_t> parse_budget(std::string_view text, const platform::system_memory& memory);

// Half of the available memory, and never below the minimum.
[[nodiscard]] std::uint64_t default_budget_bytes(const platform::system_memory& memory);

}  // namespace far::preload
