// The functions that programs call: mmap, munmap, mremap, madvise, mprotect, mlock and so on. memory_calls.h serves
// them.
#include <sys/mman.h>

#include <cerrno>
#include <cstdarg>

#include "far/detail/api.h"
#include "preload/kernel_calls.h"
#include "preload/memory_calls.h"
#include "preload/next_function.h"
#include "preload/shared_segments.h"
#include "preload/tracer.h"

namespace far::preload {
namespace {

// The functions that the program calls, observed by a tracer.
void* map_noted(void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  void* const mapped = map(address, bytes, protection, flags, descriptor, offset);
  if (trace_is_on && mapped != MAP_FAILED) trace_allocation(mapped, bytes);
  return mapped;
}

}  // namespace
}  // namespace far::preload

extern "C" {

FAR_API void* mmap(void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  return far::preload::map_noted(address, bytes, protection, flags, descriptor, offset);
}
FAR_API void* mmap64(void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  return far::preload::map_noted(address, bytes, protection, flags, descriptor, offset);
}
FAR_API int munmap(void* address, std::size_t bytes) {
  if (far::preload::trace_is_on) far::preload::trace_release(address);
  return far::preload::unmap(address, bytes);
}
FAR_API int mprotect(void* address, std::size_t bytes, int protection) {
  return far::preload::protect(address, bytes, protection);
}
FAR_API int pkey_mprotect(void* address, std::size_t bytes, int protection, int key) {
  return far::preload::protect(address, bytes, protection, key);
}
FAR_API int mseal(void* address, std::size_t bytes, unsigned long flags) {
  return far::preload::seal(address, bytes, flags);
}
FAR_API void* shmat(int segment, const void* address, int flags) {
  return far::preload::attach_segment(segment, address, flags);
}
FAR_API int shmdt(const void* address) {
  return far::preload::detach_segment(address);
}
FAR_API int madvise(void* address, std::size_t bytes, int advice) {
  return far::preload::advise(address, bytes, advice);
}
FAR_API int posix_madvise(void* address, std::size_t bytes, int advice) {
  // POSIX_MADV_DONTNEED is only a hint: unlike MADV_DONTNEED it must keep the bytes, so nothing is done.
  if (advice == POSIX_MADV_DONTNEED) return 0;
  const int saved_errno = errno;
  const int failure = far::preload::advise(address, bytes, advice) == 0 ? 0 : errno;
  errno = saved_errno;
  return failure;
}
// mincore(2) says which pages are in local memory, for far memory, too.
FAR_API int mincore(void* address, std::size_t bytes, unsigned char* resident) {
  const auto next = far::preload::next<"mincore", int (*)(void*, std::size_t, unsigned char*)>();
  if (!far::preload::has_far_hole(address, bytes)) return next(address, bytes, resident);
  return far::preload::find_resident_before_hole(address, bytes, resident);
}
// As in the kernel, a hole is reported after the rest has been done.
FAR_API int msync(void* address, std::size_t bytes, int flags) {
  const auto next = far::preload::next<"msync", int (*)(void*, std::size_t, int)>();
  if (next(address, bytes, flags) != 0) return -1;
  if (!far::preload::has_far_hole(address, bytes)) return 0;
  errno = ENOMEM;
  return -1;
}
FAR_API ssize_t process_madvise(int process, const iovec* ranges, std::size_t count, int advice, unsigned flags) {
  return far::preload::advise_process(process, ranges, count, advice, flags);
}
FAR_API int mlock(const void* address, std::size_t bytes) {
  return far::preload::lock(address, bytes, 0);
}
FAR_API int mlock2(const void* address, std::size_t bytes, unsigned flags) {
  return far::preload::lock(address, bytes, flags);
}
FAR_API int munlock(const void* address, std::size_t bytes) {
  return far::preload::unlock(address, bytes);
}
FAR_API int mlockall(int flags) {
  return far::preload::lock_all(flags);
}
FAR_API int munlockall() {
  return far::preload::unlock_all();
}
FAR_API void* mremap(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags, ...) {
  void* wanted = nullptr;
  if ((flags & MREMAP_FIXED) != 0) {
    std::va_list arguments;
    va_start(arguments, flags);
    wanted = va_arg(arguments, void*);
    va_end(arguments);
  }
  // In the order of realloc, see malloc.cc.
  if (far::preload::trace_is_on) far::preload::trace_release(address);
  void* const moved = far::preload::remap(address, old_bytes, new_bytes, flags, wanted);
  if (far::preload::trace_is_on) {
    const bool failed = moved == MAP_FAILED;
    far::preload::trace_allocation(failed ? address : moved, failed ? old_bytes : new_bytes);
  }
  return moved;
}

// Serves jemalloc's requests for metadata and for local blocks (preload/jemalloc.syms).
__attribute__((visibility("hidden"))) void* far_kernel_mmap(void* address, std::size_t bytes, int protection, int flags,
                                                            int descriptor, off_t offset) {
  return far::preload::kernel_mmap(address, bytes, protection, flags, descriptor, offset);
}
__attribute__((visibility("hidden"))) int far_kernel_munmap(void* address, std::size_t bytes) {
  return far::preload::kernel_munmap(address, bytes);
}
__attribute__((visibility("hidden"))) int far_kernel_madvise(void* address, std::size_t bytes, int advice) {
  return far::preload::kernel_madvise(address, bytes, advice);
}
__attribute__((visibility("hidden"))) int far_kernel_mprotect(void* address, std::size_t bytes, int protection) {
  return far::preload::kernel_mprotect(address, bytes, protection);
}

}  // extern "C"
