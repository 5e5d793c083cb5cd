// Arrow's buffers in far memory. Its pool "system" allocates with posix_memalign() and free(), which the library
// libarrow imports from the C library. These imports are redirected: so any version of Arrow is served, and nothing
// here is compiled against one. Arrow is one for the process, and so is this: while it is on, large buffers of all
// threads are far.
#pragma once

#include "array_memory.h"

namespace far::python {

// Redirects the allocations of each libarrow that is loaded. Returns whether there is one whose allocations are served;
// calling it again serves those that were loaded since. One thread at a time, always with the same arrays, which stay
// as long as the process.
[[nodiscard]] bool serve_arrow(array_memory& arrays);

// Whether buffers that are allocated from now on are far. Each `true` is to be followed by one `false`, from any
// thread.
void allocate_arrow_far(bool far) noexcept;

}  // namespace far::python
