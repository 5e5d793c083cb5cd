// Who asks for memory: the program, or the C library and the dynamic loader on their own account.
//
// Their own small records (streams, locales, name-service and thread data) are touched where no miss may happen:
// between the two halves of fork, and while a thread of the runtime starts. So those stay local.
#pragma once

#include <cstddef>

namespace far::preload {

// Larger blocks that the C library asks for are data that it handles for the program, such as sort buffers and lines.
inline constexpr std::size_t largest_record_bytes = std::size_t{32} << 10;

// Finds the C library and the loader. Called once, before the far heap is in use.
void find_c_library() noexcept;

// Whether the code at `return_address` is theirs. False before find_c_library().
[[nodiscard]] bool in_c_library(const void* return_address) noexcept;

}  // namespace far::preload
