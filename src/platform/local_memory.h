// Local memory for the runtime itself: never far, never taken from the program's malloc or mmap, which may be our own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace far::platform {

// Zeroed private memory, rounded up to whole pages, filled by the kernel on first touch (so a large sparse array is
// cheap). Stops the process with a message when the kernel refuses.
[[nodiscard]] std::byte* map_local(std::size_t bytes);

// The same, or nullptr when the kernel refuses.
[[nodiscard]] std::byte* try_map_local(std::size_t bytes);

// So many bytes that read as zeros. They may be written only in the part of `part_bytes` from `part` on. Only that part
// counts against limits on data. nullptr when the kernel refuses. Requires: the part is inside.
[[nodiscard]] std::byte* try_map_sparse(std::size_t bytes, std::size_t part, std::size_t part_bytes);

// Requires: map_local(bytes) or try_map_sparse(bytes, ...) returned the address.
void unmap_local(std::byte* address, std::size_t bytes);

// For a caller that unmaps it by itself right afterwards, as a thread does with the stack that it ends on: it does not
// count as the runtime's any more. False: it has to stay mapped.
[[nodiscard]] bool forget_local(std::byte* address, std::size_t bytes);

// Mappings of the runtime that must not be locked in memory: those of 1 MiB and more, which are filled as they are
// needed, or driven by userfaultfd.
struct own_mapping {
  std::uintptr_t first = 0;
  std::uintptr_t end = 0;
};
// The first that ends behind `address`; at the end of all addresses where there is none.
[[nodiscard]] own_mapping next_own_mapping(std::uintptr_t address);

// Gives the frames of whole pages back to the kernel; the range stays mapped and reads as zeros.
void release_local_frames(std::byte* address, std::size_t bytes);

// Larger blocks are mappings of their own.
inline constexpr std::size_t largest_block_bytes = std::size_t{16} << 20;

// Blocks of local memory from process-wide free lists by power-of-two size. Thread-safe.
[[nodiscard]] void* allocate_local(std::size_t bytes);
void free_local(void* block, std::size_t bytes);

// The regions that blocks come from. They only grow.
struct block_regions {
  static constexpr std::size_t region_bytes = std::size_t{1} << 30;
  std::array<std::atomic<std::uintptr_t>, 256> first{};
  std::atomic<std::size_t> count{0};
};
inline constinit block_regions local_block_regions{};

// Whether allocate_local() may have returned it. False for mappings of their own, and, when the kernel gave the process
// no more regions, for smaller blocks, too.
[[nodiscard]] inline bool is_local_block(const void* block) {
  const block_regions& all = local_block_regions;
  const std::size_t count = all.count.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uintptr_t first = all.first[i].load(std::memory_order_relaxed);
    if (reinterpret_cast<std::uintptr_t>(block) - first < block_regions::region_bytes) return true;
  }
  return false;
}

// Around a fork: the child finds all lists whole. The last locks to be taken under which others are: a thread
// that waits for them holds nothing that a fork waits for. Nothing is allocated or freed in between.
void lock_local_memory_for_fork();
void unlock_local_memory_after_fork();

// A standard allocator over allocate_local, for containers inside the runtime.
template <typename T>
class local_allocator {
 public:
  using value_type = T;
  local_allocator() = default;
  template <typename U>
  local_allocator(const local_allocator<U>& /*other*/) {}
  [[nodiscard]] T* allocate(std::size_t count) { return static_cast<T*>(allocate_local(count * sizeof(T))); }
  void deallocate(T* block, std::size_t count) { free_local(block, count * sizeof(T)); }
  template <typename U>
  bool operator==(const local_allocator<U>& /*other*/) const {
    return true;
  }
};

}  // namespace far::platform
