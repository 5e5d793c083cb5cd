// Checked builds (FARHEAP_CHECKED, far/scope.h): which pages the scopes that are open have dereferenced.
#pragma once

#include <cstdint>

#include "heap/scope_records.h"

namespace far::heap {

// Whether a scope has ever been opened by code that was compiled so.
[[nodiscard]] bool is_checked() noexcept;

// Before the caller puts an object there: until its innermost scope ends, its page is in use, and nobody checks it
// (pointer_check.h).
void note_new(std::uintptr_t object);

// Whether a scope of `one` that is open has dereferenced something in the page (its number: address / page size).
[[nodiscard]] bool has_checked(owner_record& one, std::uint64_t page) noexcept;

}  // namespace far::heap
