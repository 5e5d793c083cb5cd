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

std::size_t class_of(std::size_t bytes) {
  const std::size_t rounded = std::bit_ceil(bytes < smallest_block_bytes ? smallest_block_bytes : bytes);
  return static_cast<std::size_t>(std::countr_zero(rounded) - std::countr_zero(smallest_block_bytes));
}

}  // namespace

std::byte* try_map_local(std::size_t bytes) {
  // Straight to the kernel: the program's mmap symbol may be the one that the preload library defines.
  const long address = syscall(SYS_mmap, nullptr, round_up(bytes, page_bytes), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
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
  const long failed = syscall(SYS_munmap, address, round_up(bytes, page_bytes));
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
