// Stacks of fibers: local memory with a guard area below each, which is reused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/spin_lock.h"
#include "platform/local_memory.h"

namespace far::fiber {

// The bytes that the kernel puts on a stack to run a signal handler there, vector registers included.
[[nodiscard]] std::size_t signal_frame_bytes() noexcept;

// The smallest stack, in bytes: room for two signal frames with the processor's largest vector state, so that a fiber
// can be interrupted by a fault in far memory anywhere, and for the code around them.
[[nodiscard]] std::size_t smallest_stack_bytes() noexcept;

// The default size of a fiber's stack. Frames of sanitized builds are several times larger.
[[nodiscard]] std::size_t default_stack_bytes() noexcept;

struct stack {
  std::byte* low = nullptr;  // lowest usable byte; the guard area lies below
  std::size_t bytes = 0;     // usable

  [[nodiscard]] bool holds(const void* address) const { return address >= low && address < low + bytes; }
};

// Thread-safe. A stack that comes back keeps its frames: the next fiber finds them warm.
class stack_pool {
 public:
  // The size of the inaccessible area below a stack. Several pages, because a function may skip one.
  static constexpr std::size_t guard_bytes = std::size_t{16} << 10;

  stack_pool() = default;
  ~stack_pool();  // requires: no stack is in use
  stack_pool(const stack_pool&) = delete;
  stack_pool& operator=(const stack_pool&) = delete;

  // A stack of at least `bytes`, and at least smallest_stack_bytes(). Throws std::system_error when the kernel refuses
  // memory or guard areas, with what to do about it.
  [[nodiscard]] stack take(std::size_t bytes);

  // Requires: take() returned it; nothing runs on it.
  void give_back(stack done) noexcept;

  // Bytes of address space mapped so far, guard areas included.
  [[nodiscard]] std::uint64_t mapped_bytes() const noexcept;

 private:
  static constexpr std::size_t smallest_class_shift = 14;  // 16 KiB
  static constexpr std::size_t classes = 17;               // up to 1 GiB

  struct free_stack {  // lies at the top end of a stack that nobody uses, which is touched anyway
    free_stack* next;
    std::byte* low;
  };
  struct size_class {
    spin_lock lock;
    free_stack* free FAR_GUARDED_BY(lock) = nullptr;
  };
  struct mapping {
    std::byte* address;
    std::size_t bytes;
  };

  [[nodiscard]] static std::size_t class_of(std::size_t bytes);
  [[nodiscard]] static free_stack* top_of(stack area) noexcept;
  [[nodiscard]] stack map_more(std::size_t index);

  std::array<size_class, classes> classes_;
  mutable spin_lock mappings_lock_;
  std::vector<mapping, platform::local_allocator<mapping>> mappings_ FAR_GUARDED_BY(mappings_lock_);
};

}  // namespace far::fiber
