// Which process a number stands for, and whether it still runs: what /proc says.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace far::preload {

// The start time of process `pid` as the kernel counts it, in clock ticks since the boot. It distinguishes processes
// that have had the same number, and stays when the process becomes another program. 0: it has ended, or cannot be
// seen.
[[nodiscard]] std::uint64_t start_time_of(pid_t pid) noexcept;
[[nodiscard]] std::uint64_t start_time_of_this_process() noexcept;

// The inode of the namespace in which this process has its number; 0: unknown.
[[nodiscard]] std::uint64_t pid_namespace_of_this_process() noexcept;

// Whether this process has a child that has not ended. False where the kernel does not say.
[[nodiscard]] bool has_living_children() noexcept;

}  // namespace far::preload
