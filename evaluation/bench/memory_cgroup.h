// A memory cgroup with a limit, for the peers: the kernel's counterpart of a budget.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace far::bench {

class memory_cgroup {
 public:
  // Makes a cgroup, version 1 or 2, whichever has the memory controller here. Fails with the reason, for instance
  // without permission.
  [[nodiscard]] static result<std::unique_ptr<memory_cgroup>> create(std::uint64_t limit_bytes);

  // Removes the cgroup. Requires: its processes have ended.
  ~memory_cgroup();

  memory_cgroup(const memory_cgroup&) = delete;
  memory_cgroup& operator=(const memory_cgroup&) = delete;

  // Whether the kernel has killed a process of it for want of memory.
  [[nodiscard]] bool has_killed() const;

  // A process that writes its id to this file joins.
  [[nodiscard]] std::string members_file() const { return path_ + "/cgroup.procs"; }

 private:
  memory_cgroup(std::string path, bool version_2) : path_(std::move(path)), version_2_(version_2) {}

  std::string path_;
  bool version_2_;
};

}  // namespace far::bench
