// Serves shmat(2) and shmdt(2) where a program attaches a shared memory segment at an address of the far heap: over
// memory of its own (SHM_REMAP), or where it has unmapped some to make room. Results are those of the C library.
#pragma once

namespace far::preload {

[[nodiscard]] void* attach_segment(int segment, const void* address, int flags);
int detach_segment(const void* address);

}  // namespace far::preload
