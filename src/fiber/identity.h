// What the layers above keep for each fiber, and for each OS thread that is not running one.
#pragma once

#include <cstdint>

namespace far::fiber {

// Belongs to the fiber, and moves with it: its address stays the same while the fiber lives. Only the fiber itself (or
// the OS thread) changes it.
struct identity {
  // How many scopes it is in. While this is not 0, its priority is `in_scope`.
  std::uint32_t scope_depth = 0;
  // For the object heap: its record of this fiber. Not touched here.
  void* heap_record = nullptr;
};

// The one of the calling fiber, or of the calling OS thread. Costs a call; keep the reference while on the same fiber.
[[nodiscard]] identity& current_identity() noexcept;

// While one lives, the fiber is in a scope. Created and destroyed on the same fiber.
class scope_mark {
 public:
  scope_mark() noexcept : of_(current_identity()) { ++of_.scope_depth; }
  ~scope_mark() { --of_.scope_depth; }
  scope_mark(const scope_mark&) = delete;
  scope_mark& operator=(const scope_mark&) = delete;

 private:
  identity& of_;
};

}  // namespace far::fiber
