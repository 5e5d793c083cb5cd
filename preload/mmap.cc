// The names that programs call: mmap, munmap, mremap, madvise, mprotect. Private anonymous memory comes from the far
// heap; everything else is the kernel's business, as before.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "base/units.h"
#include "pager/runtime_thread.h"
#include "preload/in_runtime.h"
#include "preload/kernel_calls.h"
#include "preload/runtime.h"
#include "preload/tracer.h"

#define FAR_EXPORT __attribute__((visibility("default")))

namespace far::preload {
namespace {

// Flags that ask for memory of a special kind, which far memory is not.
constexpr int special_flags = MAP_FIXED_NOREPLACE | MAP_GROWSDOWN | MAP_STACK | MAP_HUGETLB | MAP_LOCKED | MAP_32BIT;

template <typename Value>
Value fail_with(const error& why, Value value) {
  errno = why.code != 0 ? why.code : ENOMEM;
  return value;
}

pager::pager* pager_for_caller() noexcept {
  return pager::on_runtime_thread() ? nullptr : active_pager();
}

pager::pager* pager_of(const void* address) noexcept {
  pager::pager* const far = pager_for_caller();
  return far != nullptr && far->contains(address) ? far : nullptr;
}

bool page_aligned(const void* address) {
  return (reinterpret_cast<std::uintptr_t>(address) & (page_bytes - 1)) == 0;
}

std::byte* bytes_at(void* address) {
  return static_cast<std::byte*>(address);
}

void* map_in_far_heap(pager::pager& far, void* address, std::size_t bytes, int protection) {
  const result<void> mapped = in_runtime([&] { return far.map_at(bytes_at(address), bytes, protection); });
  return mapped ? address : fail_with(mapped.error(), MAP_FAILED);
}

void* map_over_far_heap(pager::pager& far, void* address, std::size_t bytes, int protection, int flags, int descriptor,
                        off_t offset) {
  const result<void> handed_over = in_runtime([&] { return far.hand_over(bytes_at(address), bytes); });
  if (!handed_over) return fail_with(handed_over.error(), MAP_FAILED);
  return kernel_mmap(address, bytes, protection, flags, descriptor, offset);
}

void* map(void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  const bool anonymous = (flags & MAP_ANONYMOUS) != 0 && (flags & MAP_PRIVATE) != 0;
  const bool ordinary = anonymous && (flags & special_flags) == 0 && (protection & PROT_EXEC) == 0;
  if ((flags & MAP_FIXED) != 0) {
    pager::pager* const far = pager_of(address);
    if (far == nullptr || bytes == 0 || !page_aligned(address)) {
      return kernel_mmap(address, bytes, protection, flags, descriptor, offset);
    }
    return ordinary ? map_in_far_heap(*far, address, bytes, protection)
                    : map_over_far_heap(*far, address, bytes, protection, flags, descriptor, offset);
  }
  pager::pager* const far = pager_for_caller();
  if (far == nullptr || !ordinary || bytes == 0) {
    return kernel_mmap(address, bytes, protection, flags, descriptor, offset);
  }
  const result<std::byte*> mapped = in_runtime([&] { return far->map(bytes, protection, page_bytes); });
  return mapped ? mapped.value() : fail_with(mapped.error(), MAP_FAILED);
}

int unmap(void* address, std::size_t bytes) {
  pager::pager* const far = pager_of(address);
  if (far == nullptr || bytes == 0 || !page_aligned(address)) return kernel_munmap(address, bytes);
  const result<void> unmapped = in_runtime([&] { return far->unmap(bytes_at(address), bytes); });
  return unmapped ? 0 : fail_with(unmapped.error(), -1);
}

int protect(void* address, std::size_t bytes, int protection) {
  pager::pager* const far = pager_of(address);
  if (far == nullptr || !page_aligned(address)) return kernel_mprotect(address, bytes, protection);
  const result<void> done = in_runtime([&] { return far->protect(bytes_at(address), bytes, protection); });
  return done ? 0 : fail_with(done.error(), -1);
}

int advise(void* address, std::size_t bytes, int advice) {
  pager::pager* const far = pager_of(address);
  if (far == nullptr || !page_aligned(address)) return kernel_madvise(address, bytes, advice);
  switch (advice) {
    case MADV_DONTNEED:
    case MADV_FREE: {
      const result<void> discarded = in_runtime([&] { return far->discard(bytes_at(address), bytes); });
      return discarded ? 0 : fail_with(discarded.error(), -1);
    }
    case MADV_PAGEOUT:
    case MADV_COLD: in_runtime([&] { far->evict(bytes_at(address), bytes); }); return 0;
    default: return kernel_madvise(address, bytes, advice);
  }
}

// What the program calls, seen by a tracer.
void* map_noted(void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  void* const mapped = map(address, bytes, protection, flags, descriptor, offset);
  if (trace_is_on && mapped != MAP_FAILED) trace_allocation(mapped, bytes);
  return mapped;
}

// A place that the caller names is rare; the bytes are copied, which is right wherever it lies.
void* remap_to(pager::pager& far, void* address, std::size_t old_bytes, std::size_t new_bytes, void* wanted) {
  const result<int> known = in_runtime([&] { return far.protection_of(bytes_at(address)); });
  if (!known) return fail_with(known.error(), MAP_FAILED);
  const int protection = known.value();
  const int readable = protection | PROT_READ | PROT_WRITE;
  void* const target = map(wanted, new_bytes, readable, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (target == MAP_FAILED) return MAP_FAILED;
  if ((protection & PROT_READ) == 0) protect(address, old_bytes, readable);
  std::memcpy(target, address, std::min(old_bytes, new_bytes));
  if (protection != readable) protect(target, new_bytes, protection);
  unmap(address, old_bytes);
  return target;
}

void* remap(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags, void* wanted) {
  pager::pager* const far = pager_of(address);
  if (far == nullptr) {
    // A target inside the far heap would be unknown to the pager.
    if ((flags & MREMAP_FIXED) != 0 && pager_of(wanted) != nullptr) return fail_with({"", EINVAL}, MAP_FAILED);
    return kernel_mremap(address, old_bytes, new_bytes, flags, wanted);
  }
  if (!page_aligned(address) || new_bytes == 0 || old_bytes == 0 || (flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)) != 0) {
    return fail_with({"", EINVAL}, MAP_FAILED);
  }
  if ((flags & MREMAP_FIXED) != 0) return remap_to(*far, address, old_bytes, new_bytes, wanted);
  const result<std::byte*> moved =
      in_runtime([&] { return far->remap(bytes_at(address), old_bytes, new_bytes, (flags & MREMAP_MAYMOVE) != 0); });
  return moved ? moved.value() : fail_with(moved.error(), MAP_FAILED);
}

}  // namespace
}  // namespace far::preload

extern "C" {

FAR_EXPORT void* mmap(void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  return far::preload::map_noted(address, bytes, protection, flags, descriptor, offset);
}
FAR_EXPORT void* mmap64(void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  return far::preload::map_noted(address, bytes, protection, flags, descriptor, offset);
}
FAR_EXPORT int munmap(void* address, std::size_t bytes) {
  if (far::preload::trace_is_on) far::preload::trace_release(address);
  return far::preload::unmap(address, bytes);
}
FAR_EXPORT int mprotect(void* address, std::size_t bytes, int protection) {
  return far::preload::protect(address, bytes, protection);
}
FAR_EXPORT int madvise(void* address, std::size_t bytes, int advice) {
  return far::preload::advise(address, bytes, advice);
}
FAR_EXPORT int posix_madvise(void* address, std::size_t bytes, int advice) {
  // POSIX_MADV_DONTNEED is only a hint: unlike MADV_DONTNEED it must keep the bytes, so nothing is done.
  if (advice == POSIX_MADV_DONTNEED) return 0;
  const int saved_errno = errno;
  const int failure = far::preload::advise(address, bytes, advice) == 0 ? 0 : errno;
  errno = saved_errno;
  return failure;
}
FAR_EXPORT void* mremap(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags, ...) {
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

// What jemalloc asks of the kernel for its own records, and for local blocks (preload/jemalloc.syms).
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
