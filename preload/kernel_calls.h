// The kernel's memory calls, past every interposed name. They set errno and return what the C library's would. A call
// that finds no room is repeated where another process has just changed this one's limits.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "platform/program_limits.h"
#include "preload/in_runtime.h"

namespace far::preload {

template <typename... Arguments>
long kernel_call_for_room(long number, Arguments... arguments) {
  const long result = syscall(number, arguments...);
  if (result != -1 || errno != ENOMEM || !in_runtime(platform::adopt_limits_from_outside)) return result;
  return syscall(number, arguments...);
}

inline void* kernel_mmap(void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  return reinterpret_cast<void*>(kernel_call_for_room(SYS_mmap, address, bytes, protection, flags, descriptor, offset));
}
inline int kernel_munmap(void* address, std::size_t bytes) {
  return static_cast<int>(syscall(SYS_munmap, address, bytes));
}
inline void* kernel_mremap(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags, void* wanted) {
  return reinterpret_cast<void*>(kernel_call_for_room(SYS_mremap, address, old_bytes, new_bytes, flags, wanted));
}
inline int kernel_madvise(void* address, std::size_t bytes, int advice) {
  return static_cast<int>(syscall(SYS_madvise, address, bytes, advice));
}
// As in linux/prctl.h, which older systems have without them.
inline constexpr int change_mapping = 0x53564d41;
inline constexpr unsigned long name_of_mapping = 0;
inline int kernel_give_name(void* address, std::size_t bytes, const char* text) {
  return static_cast<int>(syscall(SYS_prctl, change_mapping, name_of_mapping, address, bytes, text));
}
inline int kernel_mprotect(void* address, std::size_t bytes, int protection) {
  return static_cast<int>(kernel_call_for_room(SYS_mprotect, address, bytes, protection));
}
inline int kernel_pkey_mprotect(void* address, std::size_t bytes, int protection, int key) {
  if (key == -1) return kernel_mprotect(address, bytes, protection);
  return static_cast<int>(syscall(SYS_pkey_mprotect, address, bytes, protection, key));
}
inline int kernel_mseal(void* address, std::size_t bytes, unsigned long flags) {
  return static_cast<int>(syscall(/* mseal, since Linux 6.10 */ 462L, address, bytes, flags));
}
inline ssize_t kernel_process_madvise(int process, const iovec* ranges, std::size_t count, int advice, unsigned flags) {
  return static_cast<ssize_t>(syscall(SYS_process_madvise, process, ranges, count, advice, flags));
}
inline int kernel_msync(void* address, std::size_t bytes, int flags) {
  return static_cast<int>(syscall(SYS_msync, address, bytes, flags));
}
inline int kernel_mincore(void* address, std::size_t bytes, unsigned char* resident) {
  return static_cast<int>(syscall(SYS_mincore, address, bytes, resident));
}
inline int kernel_mlock2(const void* address, std::size_t bytes, unsigned flags) {
  return static_cast<int>(syscall(SYS_mlock2, address, bytes, flags));
}
inline int kernel_munlock(const void* address, std::size_t bytes) {
  return static_cast<int>(syscall(SYS_munlock, address, bytes));
}
inline int kernel_mlockall(int flags) {
  return static_cast<int>(syscall(SYS_mlockall, flags));
}
inline int kernel_munlockall() {
  return static_cast<int>(syscall(SYS_munlockall));
}

}  // namespace far::preload
