// The text that CPython writes of a thread's stack in a signal handler (_Py_DumpTraceback), as our files have it.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace far::trace {

// Turns each `  File "NAME", line LINE in FUNCTION` into "NAME:LINE FUNCTION\n", leaves out all else, and at most
// deepest_stack frames. Returns the length written to `into`; a line that does not fit ends it. For signal handlers.
[[nodiscard]] std::size_t parse_python_text(std::string_view text, std::span<char> into) noexcept;

}  // namespace far::trace
