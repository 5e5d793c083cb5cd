// Functions that a loaded library has but does not export, by the symbol table of its file.
#pragma once

namespace far::trace {

// The function `name` of the library or program that holds `neighbour`; nullptr when its file has no such symbol, for
// instance because it is stripped. Not for signal handlers.
[[nodiscard]] void* find_hidden_function(const void* neighbour, const char* name);

}  // namespace far::trace
