// /proc/self/limits: the kernel's limits, where the program is to read its own.
#pragma once

namespace far::preload {

// To be told of each file that the program has opened, by this path, before it is read: a copy of this file with the
// program's limits takes its place, if these differ from the kernel's. Preserves errno.
void show_program_limits(int descriptor, const char* path) noexcept;

}  // namespace far::preload
