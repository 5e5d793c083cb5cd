// The work that a connection may do before the others of its loop have their turn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace far::server {

struct turn {
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  std::size_t work_left_bytes = 0;  // that this turn may still touch
  bool is_tired = false;            // the share of work is used up, and there is more
  std::uint64_t retry_at_ns = never;

  void begin(std::size_t share_bytes) { *this = {.work_left_bytes = share_bytes}; }
  void charge(std::size_t bytes) { work_left_bytes -= std::min(work_left_bytes, bytes); }
};

}  // namespace far::server
