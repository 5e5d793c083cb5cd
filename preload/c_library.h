// Tells requests of the program for memory from those that the C library and the dynamic loader make for themselves.
//
// Their own small records (streams, locales, name-service and thread data) are touched where no miss may happen:
// between the two halves of fork, and while a thread of the runtime starts. So those stay local.
#pragma once

#include <cstddef>
#include <cstdint>

namespace far::preload {

// Larger blocks that the C library asks for are data that it handles for the program, such as sort buffers and lines.
inline constexpr std::size_t largest_record_bytes = std::size_t{32} << 10;

struct code_range {
  std::uintptr_t start = 0;
  std::uintptr_t bytes = 0;

  [[nodiscard]] bool holds(std::uintptr_t address) const { return address - start < bytes; }
};

// Their code. Empty before find_c_library().
[[nodiscard]] code_range c_library_code() noexcept;
[[nodiscard]] code_range loader_code() noexcept;

// Finds the C library and the loader. Called once, before the far heap is in use.
void find_c_library() noexcept;

// Whether the code at `return_address` is theirs. False before find_c_library().
[[nodiscard]] bool in_c_library(const void* return_address) noexcept;

}  // namespace far::preload
