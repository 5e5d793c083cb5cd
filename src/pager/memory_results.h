// Shared by the memory calls: the kernel's protection and limits, and errno values as results.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "pager/address_map.h"

namespace far::pager {

// Straight to the kernel: the program's mprotect may be the preload library's own. Returns 0 or an errno value. Without
// a protection key, the one that the memory has stays.
[[nodiscard]] inline int set_kernel_protection(std::byte* address, std::size_t bytes, int protection,
                                               int key = no_key) {
  const long failed = key == no_key ? syscall(SYS_mprotect, address, bytes, protection)
                                    : syscall(SYS_pkey_mprotect, address, bytes, protection, key);
  return failed == 0 ? 0 : errno;
}

[[nodiscard]] inline int seal_in_kernel(std::byte* address, std::size_t bytes) {
  constexpr long mseal = 462;  // since Linux 6.10
  return syscall(mseal, address, bytes, 0L) == 0 ? 0 : errno;
}

// Makes the range an inaccessible reservation again after another mapping or advice to the kernel.
[[nodiscard]] inline int reserve_again(std::byte* address, std::size_t bytes, int how) {
  constexpr int reservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const long mapped = syscall(SYS_mmap, address, bytes, PROT_NONE, reservation | how, -1, 0L);
  return mapped != -1 ? 0 : errno;
}

// Whether the limit on locked memory allows so many bytes more. Only the kernel knows what counts, so this tries it.
[[nodiscard]] inline bool may_lock_more(const std::byte* locked, std::size_t bytes) {
  constexpr unsigned on_fault = 1;  // MLOCK_ONFAULT
  if (bytes == 0) return syscall(SYS_mlock2, locked, 0, on_fault) == 0;
  constexpr int reservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const long place = syscall(SYS_mmap, nullptr, bytes, PROT_NONE, reservation, -1, 0L);
  if (place == -1) return false;
  const bool allowed = syscall(SYS_mlock2, place, bytes, on_fault) == 0;
  syscall(SYS_munmap, place, bytes);
  return allowed;
}

// Whether the kernel has room for the mappings that a call may create: its borders split at most two, and mremap wants
// six more. Only the kernel counts them, so this tries it: each page in between with another protection makes two more.
[[nodiscard]] inline bool room_for_mappings() {
  constexpr std::size_t splits = 8;
  constexpr std::size_t bytes = (2 * splits + 1) * page_bytes;
  constexpr int reservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const long place = syscall(SYS_mmap, nullptr, bytes, PROT_NONE, reservation, -1, 0L);
  if (place == -1) return false;
  bool fits = true;
  for (std::size_t i = 0; i < splits && fits; ++i) {
    fits = syscall(SYS_mprotect, place + static_cast<long>((2 * i + 1) * page_bytes), page_bytes, PROT_READ) == 0;
  }
  syscall(SYS_munmap, place, bytes);
  return fits;
}

[[nodiscard]] inline error failed(const char* call, int code) {
  const char* const advice = code == ENOMEM ? "; if it is for want of mappings, raise vm.max_map_count" : "";
  return {std::string(call) + " in the far heap fails (" + std::strerror(code) + ")" + advice, code};
}

[[nodiscard]] inline result<void> outcome(const char* call, int code) {
  return code == 0 ? result<void>() : result<void>(failed(call, code));
}

[[nodiscard]] inline error no_room(std::size_t bytes) {
  return {"the far heap has no " + format_size(bytes) + " of free addresses left", ENOMEM};
}

}  // namespace far::pager
