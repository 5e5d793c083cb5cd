// Programs that cannot load the runtime: they run natively, and a message says so.
#pragma once

namespace far::preload {

// Why the system would not load a preloaded library into the program at `path`, or null: it would, or nobody can tell.
// Allocates nothing and takes no lock: it is also called between vfork(2) and exec.
[[nodiscard]] const char* why_native(const char* path) noexcept;

}  // namespace far::preload
