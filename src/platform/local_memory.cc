#include "platform/local_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "base/check.h"
#include "base/log.h"
#include "base/spin_lock.h"
#include "base/units.h"

#if defined(__has_feature)
#define FAR_HAS_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define FAR_HAS_THREAD_SANITIZER 0
#endif

namespace far::platform {
namespace {

constexpr std::size_t smallest_block_bytes = 16;
constexpr std::size_t largest_block_bytes = 64 * kib;
constexpr std::size_t refill_bytes = 64 * kib;
constexpr std::size_t size_classes = 13;  // 16 B .. 64 KiB

struct free_block {
  free_block* next;
};

struct free_list {
  spin_lock lock;
  free_block* head = nullptr;
};

std::array<free_list, size_classes> free_lists;

constexpr int protection = PROT_READ | PROT_WRITE;
constexpr int mapping_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

#if defined(__SANITIZE_THREAD__) || FAR_HAS_THREAD_SANITIZER
// By the functions that the sanitizer intercepts. Otherwise it takes two mappings that had the same address one after
// the other for one piece of memory, and finds races between their owners. Nothing is preloaded in such a build.
long map(std::size_t bytes) {
  return reinterpret_cast<long>(mmap(nullptr, bytes, protection, mapping_flags, -1, 0));
}

long unmap(std::byte* address, std::size_t bytes) {
  return munmap(address, bytes);
}
#else
// Straight to the kernel: the program's mmap symbol may be the one that the preload library defines.
long map(std::size_t bytes) {
  return syscall(SYS_mmap, nullptr, bytes, protection, mapping_flags, -1, 0L);
}

long unmap(std::byte* address, std::size_t bytes) {
  return syscall(SYS_munmap, address, bytes);
}
#endif

std::size_t class_of(std::size_t bytes) {
  const std::size_t rounded = std::bit_ceil(bytes < smallest_block_bytes ? smallest_block_bytes : bytes);
  return static_cast<std::size_t>(std::countr_zero(rounded) - std::countr_zero(smallest_block_bytes));
}

}  // namespace

std::byte* try_map_local(std::size_t bytes) {
  const long address = map(round_up(bytes, page_bytes));
  return address == -1 ? nullptr : reinterpret_cast<std::byte*>(address);
}

std::byte* map_local(std::size_t bytes) {
  std::byte* const address = try_map_local(bytes);
  if (address == nullptr) {
    log_line(log_level::error,
             "cannot map %zu bytes of local memory for the runtime (%s); raise the limit on address space (ulimit -v) "
             "or vm.max_map_count",
             bytes, std::strerror(errno));
    FAR_CHECK(address != nullptr, "no local memory");
  }
  return address;
}

void unmap_local(std::byte* address, std::size_t bytes) {
  const long failed = unmap(address, round_up(bytes, page_bytes));
  FAR_CHECK(failed == 0, "local memory must be unmapped as it was mapped");
}

void release_local_frames(std::byte* address, std::size_t bytes) {
  const long failed = syscall(SYS_madvise, address, bytes, MADV_DONTNEED);
  FAR_CHECK(failed == 0, "frames of local memory can always be released");
}

void* allocate_local(std::size_t bytes) {
  if (bytes > largest_block_bytes) return map_local(bytes);
  const std::size_t index = class_of(bytes);
  const std::size_t block_bytes = smallest_block_bytes << index;
  free_list& list = free_lists[index];
  const std::lock_guard guard(list.lock);
  if (list.head == nullptr) {
    std::byte* const chunk = map_local(refill_bytes);
    for (std::size_t offset = 0; offset < refill_bytes; offset += block_bytes) {
      list.head = new (chunk + offset) free_block{list.head};
    }
  }
  free_block* const block = list.head;
  list.head = block->next;
  return block;
}

void unlock_local_memory_after_fork() {
  for (free_list& list : free_lists) list.lock.unlock();
}

void free_local(void* block, std::size_t bytes) {
  if (bytes > largest_block_bytes) return unmap_local(static_cast<std::byte*>(block), bytes);
  free_list& list = free_lists[class_of(bytes)];
  const std::lock_guard guard(list.lock);
  list.head = new (block) free_block{list.head};
}

}  // namespace far::platform
