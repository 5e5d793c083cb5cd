// Data that the layers above keep for each fiber, and for each OS thread that is not running one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "far/detail/scope_record.h"

namespace far::fiber {

// Belongs to the fiber, and moves with it: its address stays the same while the fiber lives. Only the fiber itself (or
// the OS thread) changes it.
struct identity {
  // How many scopes it is in (scope_mark).
  std::uint32_t scope_depth = 0;
  // For the object heap: its record of the far::scopes of this fiber, and the function that takes it back when the
  // fiber has ended. (The object heap itself notices the ends of threads.)
  detail::scope_record* scopes = nullptr;
  void (*release_scopes)(detail::scope_record* scopes) = nullptr;
  bool of_fiber = false;

  // Then its priority is `in_scope`.
  [[nodiscard]] bool is_in_scope() const noexcept {
    return scope_depth > 0 || (scopes != nullptr && scopes->is_open());
  }
};

// The identity of the calling fiber or OS thread. Costs a call; keep the reference while on the same fiber.
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
