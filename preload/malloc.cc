// The functions that programs call: the malloc family of C, and operator new and delete of C++.
#include <dlfcn.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

#include "base/units.h"
#include "far/detail/api.h"
#include "far/detail/compiled.h"
#include "preload/allocator.h"
#include "preload/c_library.h"
#include "preload/tracer.h"
#include "trace/format.h"

namespace {

bool is_record(std::size_t bytes, const void* caller) {
  return bytes <= far::preload::largest_record_bytes && far::preload::in_c_library(caller);
}

// Where blocks come from and go to, seen by a tracer.
void* noted(void* block, std::size_t bytes) {
  if (bytes >= far::trace::least_allocation_bytes) far::preload::trace_allocation(block, bytes);
  return block;
}

bool is_traced(void* block) {
  return far::preload::trace_is_on && block != nullptr &&
         far::preload::usable_bytes(block) >= far::trace::least_allocation_bytes;
}

void* take(std::size_t bytes) {
  return noted(far::preload::allocate(bytes), bytes);
}

void* take_zeroed(std::size_t count, std::size_t bytes) {
  void* const block = far::preload::allocate_zeroed(count, bytes);
  return block == nullptr ? nullptr : noted(block, count * bytes);
}

void* take_aligned(std::size_t alignment, std::size_t bytes) {
  return noted(far::preload::allocate_aligned(alignment, bytes), bytes);
}

void* retake(void* block, std::size_t bytes) {
  const bool was_traced = is_traced(block);
  // As in give_back(). Misses of the old block while it is copied then belong to no allocation.
  if (was_traced) far::preload::trace_release(block);
  void* const moved = far::preload::reallocate(block, bytes);
  if (was_traced && moved == nullptr && bytes > 0) noted(block, far::preload::usable_bytes(block));  // it stays
  return noted(moved, bytes);
}

// The release is noted while the block is there: once it is gone, another thread may get its address.
void give_back(void* block) {
  if (is_traced(block)) far::preload::trace_release(block);
  far::preload::release(block);
}

// As in the C library, no block is larger than the largest difference of two pointers.
constexpr std::size_t largest_block_bytes = PTRDIFF_MAX;

void* or_enomem(void* block) {
  if (block == nullptr) errno = ENOMEM;
  return block;
}

// Out of memory in operator new: the program's own C++ library must call its new-handler and throw its own exception.
void* let_the_program_fail(std::size_t bytes) {
  using operator_new = void* (*)(std::size_t);
  const auto next = reinterpret_cast<operator_new>(dlsym(RTLD_NEXT, "_Znwm"));
  return next != nullptr ? next(bytes) : nullptr;
}

void* new_block(std::size_t bytes) {
  void* const block = take(bytes);
  return block != nullptr ? block : let_the_program_fail(bytes);
}

void* new_aligned_block(std::size_t bytes, std::align_val_t alignment) {
  void* const block = take_aligned(static_cast<std::size_t>(alignment), bytes);
  return block != nullptr ? block : let_the_program_fail(bytes);
}

}  // namespace

extern "C" {

FAR_API void* malloc(std::size_t bytes) {
  if (is_record(bytes, __builtin_return_address(0))) return far::preload::allocate_record(bytes);
  return take(bytes);
}
FAR_API void* calloc(std::size_t count, std::size_t bytes) {
  std::size_t all = 0;
  const bool sensible = !__builtin_mul_overflow(count, bytes, &all);
  if (sensible && is_record(all, __builtin_return_address(0))) return far::preload::allocate_record(all);
  return take_zeroed(count, bytes);
}
FAR_API void* realloc(void* block, std::size_t bytes) {
  if (bytes > 0 && is_record(bytes, __builtin_return_address(0))) return far::preload::reallocate_record(block, bytes);
  return retake(block, bytes);
}
FAR_API void* reallocarray(void* block, std::size_t count, std::size_t bytes) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) return or_enomem(nullptr);
  return retake(block, all);
}
FAR_API void free(void* block) {
  give_back(block);
}
FAR_API std::size_t malloc_usable_size(void* block) {
  return far::preload::usable_bytes(block);
}

FAR_API int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  if (!std::has_single_bit(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int saved_errno = errno;
  void* const aligned = take_aligned(alignment, bytes);
  errno = saved_errno;
  if (aligned == nullptr) return ENOMEM;
  *block = aligned;
  return 0;
}

FAR_API void* memalign(std::size_t alignment, std::size_t bytes) {
  if (alignment > largest_block_bytes + 1) {
    errno = EINVAL;
    return nullptr;
  }
  // glibc takes any alignment and rounds it up.
  return or_enomem(take_aligned(std::bit_ceil(alignment), bytes));
}

FAR_API void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  if (!std::has_single_bit(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return or_enomem(take_aligned(alignment, bytes));
}

FAR_API void* valloc(std::size_t bytes) {
  return memalign(far::page_bytes, bytes);
}
FAR_API void* pvalloc(std::size_t bytes) {
  if (bytes > largest_block_bytes) return or_enomem(nullptr);
  return memalign(far::page_bytes, far::round_up(bytes, far::page_bytes));
}
FAR_API void cfree(void* block) {
  give_back(block);
}

// Of programs of farheap-clang.
FAR_API void* far_compiled_local(void* block, std::size_t alignment, std::size_t bytes) {
  if (bytes > largest_block_bytes || !std::has_single_bit(alignment)) return or_enomem(nullptr);
  if (block == nullptr) return or_enomem(far::preload::allocate_record(bytes, alignment));
  if (bytes == 0) {
    give_back(block);
    return nullptr;
  }
  // As in retake(); what is local has no misses to note.
  const bool was_traced = is_traced(block);
  if (was_traced) far::preload::trace_release(block);
  void* const moved = far::preload::reallocate_record(block, bytes);
  if (was_traced && moved == nullptr) noted(block, far::preload::usable_bytes(block));
  return or_enomem(moved);
}

}  // extern "C"

FAR_API void* operator new(std::size_t bytes) {
  return new_block(bytes);
}
FAR_API void* operator new[](std::size_t bytes) {
  return new_block(bytes);
}
FAR_API void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return take(bytes);
}
FAR_API void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return take(bytes);
}
FAR_API void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return new_aligned_block(bytes, alignment);
}
FAR_API void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return new_aligned_block(bytes, alignment);
}
FAR_API void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return take_aligned(static_cast<std::size_t>(alignment), bytes);
}
FAR_API void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return take_aligned(static_cast<std::size_t>(alignment), bytes);
}

FAR_API void operator delete(void* block) noexcept {
  give_back(block);
}
FAR_API void operator delete[](void* block) noexcept {
  give_back(block);
}
FAR_API void operator delete(void* block, std::size_t) noexcept {
  give_back(block);
}
FAR_API void operator delete[](void* block, std::size_t) noexcept {
  give_back(block);
}
FAR_API void operator delete(void* block, const std::nothrow_t&) noexcept {
  give_back(block);
}
FAR_API void operator delete[](void* block, const std::nothrow_t&) noexcept {
  give_back(block);
}
FAR_API void operator delete(void* block, std::align_val_t) noexcept {
  give_back(block);
}
FAR_API void operator delete[](void* block, std::align_val_t) noexcept {
  give_back(block);
}
FAR_API void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  give_back(block);
}
FAR_API void operator delete[](void* block, std::size_t, std::align_val_t) noexcept {
  give_back(block);
}
FAR_API void operator delete(void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  give_back(block);
}
FAR_API void operator delete[](void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  give_back(block);
}
