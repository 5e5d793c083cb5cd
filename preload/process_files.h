// Files in /proc about this process, as the program is to read them: /proc/self/limits has its own limits where the
// kernel has others for us, and /proc/self/stat and /proc/self/status count its own threads.
#pragma once

namespace far::preload {

// To be told of each file that the program has opened, by this path, before it is read: a copy of /proc/self/limits
// with the program's limits takes its place, if these differ from the kernel's. Preserves errno.
void show_program_limits(int descriptor, const char* path) noexcept;
// The same for a stream, and the number of threads. A copy says what was true when it was made, so a descriptor, which
// a program that watches itself may read again and again, stays the kernel's; streams are seldom read twice. Nothing is
// copied once the program has restricted its system calls, and may die of those that this takes.
void show_program_threads(int descriptor, const char* path) noexcept;

}  // namespace far::preload
