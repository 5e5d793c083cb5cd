// Local memory for the runtime itself: never far, never taken from the program's malloc or mmap, which may be our own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace far::platform {

// Zeroed private memory, rounded up to whole pages, filled by the kernel on first touch (so a large sparse array is
// cheap). Stops the process with a message when the kernel refuses.
[[nodiscard]] std::byte* map_local(std::size_t bytes);

// The same, or nullptr when the kernel refuses.
[[nodiscard]] std::byte* try_map_local(std::size_t bytes);

// Requires: what map_local(bytes) returned.
void unmap_local(std::byte* address, std::size_t bytes);

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

// Blocks of local memory from process-wide free lists by power-of-two size. Thread-safe. Blocks above 16 MiB are
// mappings of their own.
[[nodiscard]] void* allocate_local(std::size_t bytes);
void free_local(void* block, std::size_t bytes);

// In the child of a fork, whose other threads are gone: unlocks what they held.
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
