// Blocks of the malloc family for the runtime itself: its threads, and threads of the program inside it. They do not
// come from jemalloc, because a fork holds its locks while it waits for the runtime's threads. See
// docs/decisions/0004-fork.md.
#pragma once

#include <cstddef>

#include "platform/local_memory.h"

namespace far::preload {

// Call both inside the runtime (preload/in_runtime.h), whose locks they take.
//
// nullptr when it is too large (some 16 MiB), or there is no memory. `alignment_bytes`: a power of two.
[[nodiscard]] void* allocate_runtime_block(std::size_t bytes, std::size_t alignment_bytes) noexcept;
// Requires: is_runtime_block(block).
void free_runtime_block(void* block) noexcept;
[[nodiscard]] std::size_t runtime_block_bytes(const void* block) noexcept;

// Whether a block that the malloc family handed out is one of these.
[[nodiscard]] inline bool is_runtime_block(const void* block) noexcept {
  return platform::is_local_block(block);
}

}  // namespace far::preload
