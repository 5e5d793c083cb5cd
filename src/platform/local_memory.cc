#include "platform/local_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/log.h"
#include "base/sanitizers.h"
#include "base/spin_lock.h"
#include "base/units.h"
#include "platform/left_alone.h"
#include "platform/program_limits.h"

namespace far::platform {
namespace {

constexpr std::size_t smallest_block_bytes = 16;
constexpr std::size_t refill_bytes = 64 * kib;
constexpr std::size_t usable_reserve_bytes = 32 * mib;
constexpr std::size_t size_classes = 21;  // 16 B .. 16 MiB
// Free blocks from here on keep the frame of their first page only.
constexpr std::size_t smallest_released_bytes = 128 * kib;
struct free_block {
  free_block* next;
};

struct free_list {
  spin_lock lock;
  free_block* head FAR_GUARDED_BY(lock) = nullptr;
};

std::array<free_list, size_classes> free_lists;

constexpr int protection = PROT_READ | PROT_WRITE;
constexpr int mapping_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | left_alone;

#if defined(FAR_THREAD_SANITIZER)
// Uses the functions that the sanitizer intercepts. Otherwise it would confuse successive mappings at one address, and
// report races between their owners. Nothing is preloaded in such a build.
long map(std::size_t bytes, int allowed) {
  return reinterpret_cast<long>(mmap(nullptr, bytes, allowed, mapping_flags, -1, 0));
}

bool allow_access(std::byte* address, std::size_t bytes) {
  return mprotect(address, bytes, protection) == 0;
}

long unmap(std::byte* address, std::size_t bytes) {
  return munmap(address, bytes);
}
#else
// Straight to the kernel: the program's mmap symbol may be the one that the preload library defines.
long map(std::size_t bytes, int allowed) {
  return syscall(SYS_mmap, nullptr, bytes, allowed, mapping_flags, -1, 0L);
}

bool allow_access(std::byte* address, std::size_t bytes) {
  return syscall(SYS_mprotect, address, bytes, protection) == 0;
}

long unmap(std::byte* address, std::size_t bytes) {
  return syscall(SYS_munmap, address, bytes);
}
#endif

// Only what may be written counts against limits on data.
bool make_usable(std::byte* address, std::size_t bytes, std::size_t more_bytes) {
  note_own_memory(0, static_cast<std::int64_t>(more_bytes));
  if (allow_access(address, bytes)) return true;
  if (adopt_limits_from_outside() && allow_access(address, bytes)) return true;
  note_own_memory(0, -static_cast<std::int64_t>(more_bytes));
  return false;
}

constexpr std::size_t large_mapping_bytes = mib;

// An entry is free while its `first` is 0. A mapping that finds no entry may be locked.
struct noted_mapping {
  std::atomic<std::uintptr_t> first{0};
  std::atomic<std::size_t> bytes{0};
  std::atomic<std::size_t> read_only_bytes{0};
};
std::array<noted_mapping, 1024> large_mappings;
spin_lock noting;

void note_mapping(std::uintptr_t first, std::size_t bytes) {
  if (bytes < large_mapping_bytes) return;
  const lock_guard guard(noting);
  for (noted_mapping& mapping : large_mappings) {
    if (mapping.first.load() != 0) continue;
    mapping.bytes.store(bytes);
    mapping.read_only_bytes.store(0);
    mapping.first.store(first);
    return;
  }
}

void note_read_only(std::uintptr_t first, std::size_t bytes) {
  const lock_guard guard(noting);
  for (noted_mapping& mapping : large_mappings) {
    if (mapping.first.load() == first) return mapping.read_only_bytes.store(bytes);
  }
}

// Returns how much of it was read-only.
std::size_t forget_mapping(std::uintptr_t first, std::size_t bytes) {
  if (bytes < large_mapping_bytes) return 0;
  const lock_guard guard(noting);
  for (noted_mapping& mapping : large_mappings) {
    if (mapping.first.load() != first) continue;
    mapping.first.store(0);
    return mapping.read_only_bytes.load();
  }
  return 0;
}

std::size_t class_of(std::size_t bytes) {
  const std::size_t rounded = std::bit_ceil(bytes < smallest_block_bytes ? smallest_block_bytes : bytes);
  return static_cast<std::size_t>(std::countr_zero(rounded) - std::countr_zero(smallest_block_bytes));
}

struct region {
  spin_lock lock;
  std::byte* next FAR_GUARDED_BY(lock) = nullptr;
  std::size_t left_bytes FAR_GUARDED_BY(lock) = 0;
  std::size_t usable_bytes FAR_GUARDED_BY(lock) = 0;  // the first of those that are left
};

region blocks_region;

std::byte* try_map(std::size_t bytes, int allowed) {
  const auto whole = static_cast<std::int64_t>(round_up(bytes, page_bytes));
  const std::int64_t data_bytes = (allowed & PROT_WRITE) != 0 ? whole : 0;
  note_own_memory(whole, data_bytes);
  long address = map(round_up(bytes, page_bytes), allowed);
  if (address == -1 && adopt_limits_from_outside()) address = map(round_up(bytes, page_bytes), allowed);
  if (address == -1) {
    note_own_memory(-whole, -data_bytes);
    return nullptr;
  }
  note_mapping(static_cast<std::uintptr_t>(address), bytes);
  return reinterpret_cast<std::byte*>(address);
}

// Regions are large, so that there are blocks when the kernel gives the process no more mappings.
bool map_region() FAR_REQUIRES(blocks_region.lock) {
  block_regions& all = local_block_regions;
  const std::size_t count = all.count.load(std::memory_order_relaxed);
  if (count == all.first.size()) return false;
  std::byte* const mapped = try_map(block_regions::region_bytes, PROT_NONE);
  if (mapped == nullptr) return false;
  blocks_region.next = mapped;
  blocks_region.left_bytes = block_regions::region_bytes;
  blocks_region.usable_bytes = 0;
  all.first[count].store(reinterpret_cast<std::uintptr_t>(mapped), std::memory_order_relaxed);
  all.count.store(count + 1, std::memory_order_release);
  return true;
}

// Only the usable part of a region counts against limits on memory (ulimit -d). It is somewhat larger than the carved
// part, because the program may set such a limit at any time. Requires: so much is left.
bool ensure_usable(std::size_t bytes) FAR_REQUIRES(blocks_region.lock) {
  if (blocks_region.usable_bytes >= bytes) return true;
  for (const std::size_t more : {std::min(blocks_region.left_bytes, bytes + usable_reserve_bytes), bytes}) {
    if (!make_usable(blocks_region.next, more, more - blocks_region.usable_bytes)) continue;
    blocks_region.usable_bytes = more;
    return true;
  }
  return false;
}

[[noreturn]] void say_that_none_is_left(std::size_t bytes, int failure) {
  log_line(log_level::error,
           "cannot map %zu bytes of local memory for the runtime (%s); raise the limit on address space (ulimit -v) or "
           "data (ulimit -d), or vm.max_map_count",
           bytes, std::strerror(failure));
  FAR_CHECK(false, "no local memory");
  std::abort();
}

// Takes from the usable part of the region when the kernel gives no more: the program may have set a limit below its
// present size.
std::byte* take_from_reserve(std::size_t bytes) {
  const std::size_t whole = round_up(bytes, page_bytes);
  const lock_guard guard(blocks_region.lock);
  if (blocks_region.usable_bytes < whole) return nullptr;
  std::byte* const taken = blocks_region.next;
  blocks_region.next += whole;
  blocks_region.left_bytes -= whole;
  blocks_region.usable_bytes -= whole;
  return taken;
}

// Requires: a power of two, and at least a page, so that what is carved is aligned to pages.
std::byte* carve(std::size_t bytes) {
  const lock_guard guard(blocks_region.lock);
  if ((blocks_region.left_bytes < bytes && !map_region()) || !ensure_usable(bytes)) {
    std::byte* const mapped = try_map(bytes, protection);
    if (mapped == nullptr) say_that_none_is_left(bytes, errno);
    return mapped;
  }
  std::byte* const carved = blocks_region.next;
  blocks_region.next += bytes;
  blocks_region.left_bytes -= bytes;
  blocks_region.usable_bytes -= bytes;
  return carved;
}

}  // namespace

std::byte* try_map_local(std::size_t bytes) {
  return try_map(bytes, protection);
}

std::byte* try_map_sparse(std::size_t bytes, std::size_t part, std::size_t part_bytes) {
  std::byte* const address = try_map(bytes, PROT_READ);
  const std::size_t first = part / page_bytes * page_bytes;
  const std::size_t writable = round_up(part + part_bytes - first, page_bytes);
  if (address == nullptr) return nullptr;
  note_read_only(reinterpret_cast<std::uintptr_t>(address), round_up(bytes, page_bytes));
  if (!make_usable(address + first, writable, writable)) {
    unmap_local(address, bytes);
    return nullptr;
  }
  note_read_only(reinterpret_cast<std::uintptr_t>(address), round_up(bytes, page_bytes) - writable);
  return address;
}

own_mapping next_own_mapping(std::uintptr_t address) {
  own_mapping next{~std::uintptr_t{0}, ~std::uintptr_t{0}};
  const lock_guard guard(noting);
  for (const noted_mapping& mapping : large_mappings) {
    const std::uintptr_t first = mapping.first.load();
    const std::uintptr_t end = first + round_up(mapping.bytes.load(), page_bytes);
    if (first != 0 && end > address && first < next.first) next = {first, end};
  }
  return next;
}

std::byte* map_local(std::size_t bytes) {
  std::byte* const address = try_map_local(bytes);
  if (address != nullptr) return address;
  const int failure = errno;
  std::byte* const spare = take_from_reserve(bytes);
  if (spare == nullptr) say_that_none_is_left(bytes, failure);
  return spare;
}

void unmap_local(std::byte* address, std::size_t bytes) {
  // A block from the reserve. Nothing in a region is ever unmapped, or the program's next mapping there would be taken
  // for a block.
  if (is_local_block(address)) return release_local_frames(address, round_up(bytes, page_bytes));
  const std::size_t read_only_bytes = forget_mapping(reinterpret_cast<std::uintptr_t>(address), bytes);
  const long failed = unmap(address, round_up(bytes, page_bytes));
  FAR_CHECK(failed == 0, "local memory must be unmapped as it was mapped");
  const auto whole = static_cast<std::int64_t>(round_up(bytes, page_bytes));
  note_own_memory(-whole, static_cast<std::int64_t>(read_only_bytes) - whole);
}

bool forget_local(std::byte* address, std::size_t bytes) {
  if (is_local_block(address)) return false;  // from the reserve, as in unmap_local()
  const std::size_t read_only_bytes = forget_mapping(reinterpret_cast<std::uintptr_t>(address), bytes);
  const auto whole = static_cast<std::int64_t>(round_up(bytes, page_bytes));
  note_own_memory(-whole, static_cast<std::int64_t>(read_only_bytes) - whole);
  return true;
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
  const lock_guard guard(list.lock);
  if (list.head == nullptr) {
    const std::size_t chunk_bytes = block_bytes > refill_bytes ? block_bytes : refill_bytes;
    std::byte* const chunk = carve(chunk_bytes);
    for (std::size_t offset = 0; offset < chunk_bytes; offset += block_bytes) {
      list.head = new (chunk + offset) free_block{list.head};
    }
  }
  free_block* const block = list.head;
  list.head = block->next;
  return block;
}

// Not checked: locks of an array, taken by one function and given back by the other.
void lock_local_memory_for_fork() FAR_UNCHECKED_LOCKING {
  for (free_list& list : free_lists) list.lock.lock();
  blocks_region.lock.lock();
  noting.lock();
}

void unlock_local_memory_after_fork() FAR_UNCHECKED_LOCKING {
  noting.unlock();
  blocks_region.lock.unlock();
  for (free_list& list : free_lists) list.lock.unlock();
}

void free_local(void* block, std::size_t bytes) {
  if (bytes > largest_block_bytes) return unmap_local(static_cast<std::byte*>(block), bytes);
  const std::size_t index = class_of(bytes);
  const std::size_t block_bytes = smallest_block_bytes << index;
  if (block_bytes >= smallest_released_bytes) {
    release_local_frames(static_cast<std::byte*>(block) + page_bytes, block_bytes - page_bytes);
  }
  free_list& list = free_lists[index];
  const lock_guard guard(list.lock);
  list.head = new (block) free_block{list.head};
}

}  // namespace far::platform
