#include "peer_setup.h"

#include <errno.h>
#include <unistd.h>

#include <utility>

namespace far::bench {

namespace {

result<std::unique_ptr<peer_device>> open_device(peer kind, std::uint64_t bytes) {
  switch (kind) {
    case peer::zram_swap: return open_zram_device(bytes);
    case peer::disk_swap: return open_swap_file(bytes);
    default: return open_loop_device(bytes);
  }
}

}  // namespace

result<surroundings> set_up_peer(peer kind, int cluster, std::uint64_t working_set_bytes, std::uint64_t local_bytes,
                                 std::uint64_t allowance_bytes) {
  surroundings created;
  if (kind == peer::none) return created;
  if (geteuid() != 0) return error{"needs root, to make devices and a memory cgroup", EPERM};
  const std::uint64_t device_bytes = working_set_bytes + working_set_bytes / 4;
  auto device = open_device(kind, device_bytes);
  if (!device) return device.error();
  if (kind == peer::mapped_device) {
    created.mapped = std::move(device).value();
  } else {
    auto swap = swap_area::enable(std::move(device).value(), device_bytes);
    if (!swap) return swap.error();
    created.swap = std::move(swap).value();
    auto setting = page_cluster::set(cluster);
    if (!setting) return setting.error();
    created.cluster = std::move(setting).value();
  }
  auto cgroup = memory_cgroup::create(local_bytes + allowance_bytes);
  if (!cgroup) return cgroup.error();
  created.cgroup = std::move(cgroup).value();
  return created;
}

}  // namespace far::bench
