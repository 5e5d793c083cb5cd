#include "memory_cgroup.h"

#include <errno.h>
#include <fmt/format.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <sstream>

#include "system_file.h"

namespace far::bench {

namespace {

struct controller {
  std::string mount;
  bool version_2 = false;
};

// Where the memory controller is mounted, or an empty path.
controller find_controller() {
  FILE* mounts = setmntent("/proc/self/mounts", "re");
  if (mounts == nullptr) return {};
  controller found;
  while (const mntent* entry = getmntent(mounts)) {
    if (strcmp(entry->mnt_type, "cgroup") == 0 && hasmntopt(entry, "memory") != nullptr) {
      found = {entry->mnt_dir, false};
      break;
    }
    if (strcmp(entry->mnt_type, "cgroup2") != 0) continue;
    const result<std::string> controllers = read_system_file(std::string(entry->mnt_dir) + "/cgroup.controllers");
    if (controllers && (" " + controllers.value() + " ").find(" memory ") != std::string::npos) {
      found = {entry->mnt_dir, true};
    }
  }
  endmntent(mounts);
  return found;
}

}  // namespace

result<std::unique_ptr<memory_cgroup>> memory_cgroup::create(std::uint64_t limit_bytes) {
  const controller where = find_controller();
  if (where.mount.empty()) {
    return error{"no cgroup mount with the memory controller; mount one, or run on a machine that has it", ENOENT};
  }
  if (where.version_2) {
    const result<void> enabled = write_system_file(where.mount + "/cgroup.subtree_control", "+memory");
    if (!enabled) return error{enabled.error().message + "; run as root, outside of a container", enabled.error().code};
  }
  const std::string path = fmt::format("{}/farheap-bench-{}", where.mount, getpid());
  if (mkdir(path.c_str(), 0755) != 0) {
    return error{fmt::format("cannot make the memory cgroup {}: {}; run as root", path, strerror(errno)), errno};
  }
  auto created = std::unique_ptr<memory_cgroup>(new memory_cgroup(path, where.version_2));
  const char* limit_file = where.version_2 ? "/memory.max" : "/memory.limit_in_bytes";
  const result<void> limited = write_system_file(path + limit_file, std::to_string(limit_bytes));
  if (!limited) return limited.error();
  return created;
}

bool memory_cgroup::has_killed() const {
  const result<std::string> events = read_system_file(path_ + (version_2_ ? "/memory.events" : "/memory.oom_control"));
  if (!events) return false;
  std::istringstream lines(events.value());
  std::string name;
  for (std::uint64_t count = 0; lines >> name >> count;) {
    if (name == "oom_kill") return count > 0;
  }
  return false;
}

memory_cgroup::~memory_cgroup() {
  // The last member may still be on its way out.
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (rmdir(path_.c_str()) == 0 || errno == ENOENT) return;
    const timespec pause{0, 20'000'000};
    nanosleep(&pause, nullptr);
  }
  fmt::print(stderr, "farheap-bench: cannot remove the cgroup {}: {}; remove it with rmdir\n", path_, strerror(errno));
}

}  // namespace far::bench
