// Descriptors of the runtime, inside a program that has descriptors of its own.
#pragma once

namespace far::platform {

// Takes `descriptor` (close-on-exec) into the runtime's care and returns the number to use from now on: a high one
// where that can be had. Programs that count on low numbers, such as shells with `exec 3>log`, would otherwise write
// over it. A negative `descriptor` is returned as it is; errno is preserved.
[[nodiscard]] int own_descriptor(int descriptor);

// The same for a descriptor that keeps its number.
void keep_own_descriptor(int descriptor) noexcept;

// Whether `descriptor` is in the runtime's care, so that a door can keep the program from closing it. If a userfaultfd
// were closed, memory that is not resident would read as zeros.
[[nodiscard]] bool is_own_descriptor(int descriptor) noexcept;

// The runtime has closed it.
void disown_descriptor(int descriptor) noexcept;
// Closes it; its number is free for the program.
void close_own_descriptor(int descriptor) noexcept;

}  // namespace far::platform
