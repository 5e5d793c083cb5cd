// Descriptors of the runtime, inside a program that has descriptors of its own.
#pragma once

namespace far::backend {

// Moves `descriptor` (close-on-exec) to a high number where it can, and returns the number to use from now on. Programs
// that count on low numbers, such as shells with `exec 3>log`, would otherwise write over it. A negative `descriptor`
// is returned as it is; errno is preserved.
[[nodiscard]] int move_descriptor_high(int descriptor);

}  // namespace far::backend
