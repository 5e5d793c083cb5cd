// The static arrays of the executable that become far memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace far::preload {

// Zero-initialised static memory (.bss) of the executable, as whole 2 MiB blocks, if it is large. Its beginning stays
// local: the linker puts variables of the C library there, which the runtime's own threads use.
[[nodiscard]] std::vector<std::span<std::byte>> find_static_arrays();

}  // namespace far::preload
