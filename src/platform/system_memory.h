// How much memory this process may count on: the machine's, within the limits of its memory cgroups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace far::platform {

struct system_memory {
  std::uint64_t physical_bytes = 0;
  // The memory available now without swapping: MemAvailable, or less where a memory cgroup is nearly full.
  std::uint64_t available_bytes = 0;
  // The lowest limit among the process's memory cgroup and the cgroups above it; empty when there is none below
  // physical_bytes.
  std::optional<std::uint64_t> cgroup_limit_bytes;
  // For how long, since some time before the start, a thread of the cgroup has waited for memory, or without a cgroup
  // a thread of the machine. 0 if the kernel does not measure it: for cgroups of version 1 it never does, and who
  // waits elsewhere on the machine says nothing about memory within a limit of one's own.
  std::uint64_t stalled_us = 0;
  // How often the cgroup has been unable to get memory even so.
  std::uint64_t failures = 0;

  // Physical memory or the cgroup's limit, whichever is lower.
  [[nodiscard]] std::uint64_t usable_bytes() const { return cgroup_limit_bytes.value_or(physical_bytes); }
};

// Reads /proc/meminfo, /proc/pressure, and the files of cgroup versions 1 and 2. Fails when /proc/meminfo cannot be
// read; a cgroup file system that is not mounted counts as "no limit". `root` stands before every path, for tests.
[[nodiscard]] result<system_memory> read_system_memory(const std::string& root = "");

}  // namespace far::platform
