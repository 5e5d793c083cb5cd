// Grace periods for containers that are read without a lock: they tell when no reader can still hold a reference to
// something that was unlinked.
#pragma once

#include <cstdint>

#include "far/detail/api.h"

namespace far::detail {

// Call it when something has become unreachable for scopes that open from now on. Returns a number for
// have_scopes_ended(). Does not wait.
[[nodiscard]] FAR_API std::uint32_t note_out_of_reach() noexcept;

// Whether all scopes that were open then have ended. Does not wait, but makes a system call now and then, so ask about
// many things at a time.
[[nodiscard]] FAR_API bool have_scopes_ended(std::uint32_t since) noexcept;

}  // namespace far::detail
