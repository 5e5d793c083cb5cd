// Data that the layers above keep for each fiber, and for each OS thread that is not running one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace far::fiber {

// Belongs to the fiber, and moves with it: its address stays the same while the fiber lives. Only the fiber itself (or
// the OS thread) changes it.
struct identity {
  // How many scopes it is in (scope_mark).
  std::uint32_t scope_depth = 0;
  // For the object heap: its hazard log of this fiber, how many pages are held in it, and what takes the hazard log
  // back when the fiber has ended (a thread's end is for the object heap to notice).
  void* heap_hazard_log = nullptr;
  const std::atomic<std::size_t>* held_pages = nullptr;
  void (*release_heap_hazard_log)(void* hazard_log) = nullptr;
  bool of_fiber = false;

  // Then its priority is `in_scope`.
  [[nodiscard]] bool is_in_scope() const noexcept {
    return scope_depth > 0 || (held_pages != nullptr && held_pages->load(std::memory_order_relaxed) > 0);
  }
};

// The one of the calling fiber, or of the calling OS thread. Costs a call; keep the reference while on the same fiber.
[[nodiscard]] identity& current_identity() noexcept;

// Room for the history of the fiber's misses. It must not need to be destroyed.
struct miss_room {
  static constexpr std::size_t bytes = 448;
  alignas(std::max_align_t) std::byte room[bytes];  // undefined until `used`
  bool used = false;
};

// The one of the calling fiber, or nullptr on an OS thread. Inside a fault handler too.
[[nodiscard]] miss_room* current_miss_room() noexcept;

// While one lives, the fiber is in a scope. Created and destroyed on the same fiber.
class scope_mark {
 public:
  scope_mark() noexcept : current_(current_identity()) { ++current_.scope_depth; }
  ~scope_mark() { --current_.scope_depth; }
  scope_mark(const scope_mark&) = delete;
  scope_mark& operator=(const scope_mark&) = delete;

 private:
  identity& current_;
};

}  // namespace far::fiber
