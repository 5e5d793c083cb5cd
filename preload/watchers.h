// Who watches this program, apart from the runtime.
#pragma once

namespace far::preload {

// Whether a debugger has started the program. It would stop at each signal.
[[nodiscard]] bool is_traced();

// The name of a sanitizer that notes for each byte who accessed or set it, or null. The program has functions of its
// own in place of the C library's then, and would take what the runtime copies and reads by them for its own doing.
[[nodiscard]] const char* noting_sanitizer();

// Whether the program has AddressSanitizer or LeakSanitizer, whose functions in place of the C library's the runtime
// calls, too, also to bring a page: what is static in the program, as their tables are, cannot be far then.
[[nodiscard]] bool has_sanitizer_of_calls();

}  // namespace far::preload
