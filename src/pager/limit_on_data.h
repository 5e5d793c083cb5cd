// The far heap under a limit on data (ulimit -d).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace far::pager {

// How much address space a far heap reserves by default. It costs nothing until it is used; programs reserve far more
// than they touch.
[[nodiscard]] std::uint64_t default_heap_bytes();

// A limit on data counts the addresses of our tables as it counts the program's memory: they must fit, and leave half
// of it to the program. Held while the far tier is opened, so that the tier does not use up this room.
class room_under_limit {
 public:
  // `reads_parts`: as in engine::options. `more_bytes`: of tables beside the engine's.
  room_under_limit(std::uint64_t heap_bytes, bool reads_parts, std::uint64_t more_bytes = 0);
  ~room_under_limit() { release(); }
  room_under_limit(const room_under_limit&) = delete;
  room_under_limit& operator=(const room_under_limit&) = delete;

  [[nodiscard]] result<void> fits() const;
  void release();

 private:
  bool fits_ = true;
  std::uint64_t wanted_bytes_ = 0;
  std::uint64_t held_bytes_ = 0;
  std::byte* held_ = nullptr;
};

}  // namespace far::pager
