// Programs that cannot load the runtime: they run natively, and a message says so.
#pragma once

namespace far::preload {

// The reason why the system would not load a preloaded library into the program at `path`. Null: it would, or that
// cannot be found out. Allocates nothing and takes no lock: it is also called between vfork(2) and exec.
[[nodiscard]] const char* why_native(const char* path) noexcept;

}  // namespace far::preload
