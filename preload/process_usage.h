// The CPU time and memory that a process has used.
#pragma once

#include <cstdint>

namespace far::preload {

struct process_usage {
  std::uint64_t user_ns = 0;  // of all its threads
  std::uint64_t system_ns = 0;
  std::uint64_t peak_rss_bytes = 0;
};

// So far, of this process. The peak is that of the program alone.
[[nodiscard]] process_usage read_process_usage() noexcept;

}  // namespace far::preload
