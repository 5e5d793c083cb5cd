// A call on another stack, without a system call and without a thread.
#pragma once

#include <cstddef>

namespace far::platform {

// Calls `body(context)` with its stack below `top`, which is aligned to 16 bytes, and returns to the present one.
// Requires: `body` neither throws nor jumps out. Unwinders see the caller behind it.
void call_on_stack(void (*body)(void* context), void* context, std::byte* top) noexcept;

}  // namespace far::platform
