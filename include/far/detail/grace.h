// When nobody is left who can have reached what was taken out of reach: for containers that are read without a lock.
#pragma once

#include <cstdint>

#include "far/detail/api.h"

namespace far::detail {

// Call it when something is out of reach for scopes that open from now on. Returns a number to ask with. Does not wait.
[[nodiscard]] FAR_API std::uint32_t note_out_of_reach() noexcept;

// Whether all scopes have ended that were open then. Does not wait, but costs a system call now and then; ask for many
// things at a time.
[[nodiscard]] FAR_API bool have_scopes_ended(std::uint32_t since) noexcept;

}  // namespace far::detail
