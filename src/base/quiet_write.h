// Writing on behalf of the runtime, in a process that is the program's.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace far {

// Like write(2), without the signals by which the kernel ends a process that writes to a pipe without a reader
// (SIGPIPE), or beyond its limit on the size of files (SIGXFSZ): the program has not written. Safe inside a signal
// handler.
[[nodiscard]] ssize_t write_quietly(int file, const void* text, std::size_t bytes) noexcept;

}  // namespace far
