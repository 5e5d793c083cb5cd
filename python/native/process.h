// The far heap of a Python process that was not started by `farheap run`: started by the first farheap.memory(), and
// kept until the process ends, because arrays outlive blocks.
#pragma once

#include <string>

#include "array_memory.h"
#include "base/result.h"
#include "pager/pager.h"

namespace far::python {

// The far tier that it was started with; nullptr: it was not. It is the process's, however often the package is
// imported.
[[nodiscard]] const char* far_tier() noexcept;

// Starts it: `local` is the budget as in `farheap run --local` or empty for half of the available memory, `far` the far
// tier. Requires: it was not started. Errors say what to do. Afterwards the process answers `farheap stats` and
// `farheap resize`, and so do children of fork that have lived for a second.
[[nodiscard]] result<void> start(const std::string& local, const std::string& far);

// Changes the budget; `local` as above, and not empty. Requires, as those below: start() has succeeded.
[[nodiscard]] result<void> resize(const std::string& local);

[[nodiscard]] pager::pager& far_heap() noexcept;
[[nodiscard]] array_memory& arrays() noexcept;

}  // namespace far::python
