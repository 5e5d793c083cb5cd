// The surroundings that a peer's process needs: a device in RAM, swap on it, a memory cgroup.
#pragma once

#include <errno.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "memory_cgroup.h"
#include "peer_device.h"

namespace far::bench {

enum class peer { none, loop_swap, zram_swap, disk_swap, mapped_device };

// In the order in which they are set up; undone in reverse.
struct surroundings {
  std::unique_ptr<peer_device> mapped;
  std::unique_ptr<swap_area> swap;
  std::unique_ptr<page_cluster> cluster;
  std::unique_ptr<memory_cgroup> cgroup;
};

// Memory that a peer's process needs beside its working set and the kernel counts against the cgroup: its program,
// stacks, page tables, and the samples. Farheap's own are not counted against its budget either.
inline constexpr std::uint64_t peer_allowance_bytes = std::uint64_t{16} << 20;

// For a working set of which `local_bytes` fit, in a cgroup of that size and `allowance_bytes`; `cluster`:
// page-cluster, for swap. Nothing for peer::none. Needs root.
[[nodiscard]] result<surroundings> set_up_peer(peer kind, int cluster, std::uint64_t working_set_bytes,
                                               std::uint64_t local_bytes,
                                               std::uint64_t allowance_bytes = peer_allowance_bytes);

// Calls `run(launcher)`, which returns a result, in such surroundings; `launcher`: the words before a command that runs
// in the cgroup. The kernel kills at times although there is swap, when each page of the cgroup has just been used.
// Then it is tried again, in new surroundings.
template <typename Run>
auto run_in_peer(peer kind, int cluster, std::uint64_t working_set_bytes, std::uint64_t local_bytes,
                 std::uint64_t allowance_bytes, const Run& run) -> decltype(run(std::vector<std::string>())) {
  constexpr int most_attempts = 3;
  for (int attempt = 1; attempt <= most_attempts; ++attempt) {
    const result<surroundings> around = set_up_peer(kind, cluster, working_set_bytes, local_bytes, allowance_bytes);
    if (!around) return around.error();
    const memory_cgroup& cgroup = *around.value().cgroup;
    auto ran = run({"/bin/sh", "-c", "echo $$ > \"$0\" && exec \"$@\"", cgroup.members_file()});
    if (ran || !cgroup.has_killed()) return ran;
  }
  return error{"the kernel found no page to take from its cgroup, and killed it, each time", ENOMEM};
}

}  // namespace far::bench
