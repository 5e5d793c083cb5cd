// Serves the program's memory calls, however they arrive: through the names of the C library (mmap.cc) or a raw system
// call. Arguments are those of the call, results those of the C library: errno is set.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace far::preload {

[[nodiscard]] void* map(void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset);
int unmap(void* address, std::size_t bytes);
// pkey_mprotect(2); with the key -1 mprotect.
int protect(void* address, std::size_t bytes, int protection, int key = -1);
// mseal(2)
int seal(void* address, std::size_t bytes, unsigned long flags);
int advise(void* address, std::size_t bytes, int advice);
// prctl(2) with PR_SET_VMA and PR_SET_VMA_ANON_NAME. Null: takes the name away.
int give_name(void* address, std::size_t bytes, const char* text);
// `wanted` is looked at with MREMAP_FIXED and MREMAP_DONTUNMAP only.
[[nodiscard]] void* remap(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags, void* wanted);
// process_madvise(2). Returns how many bytes it advised.
[[nodiscard]] ssize_t advise_process(int process, const iovec* ranges, std::size_t count, int advice, unsigned flags);

// For mincore(2) and msync(2): whether a part of the range is free in the far heap. The kernel, to which all of the
// heap is mapped, cannot tell. False also where it refuses the address.
[[nodiscard]] bool has_far_hole(const void* address, std::size_t bytes);
// mincore(2) of a range with such a hole: as in the kernel, it is reported after the pages before it.
int find_resident_before_hole(void* address, std::size_t bytes, unsigned char* resident);
// msync(2) of a range with such a hole: as in the kernel, it is reported after the rest has been done.
int sync_around_holes(void* address, std::size_t bytes, int flags);

// mlock2(2) (mlock with no flags), munlock, mlockall, munlockall.
int lock(const void* address, std::size_t bytes, unsigned flags);
int unlock(const void* address, std::size_t bytes);
int lock_all(int flags);
int unlock_all();

}  // namespace far::preload
