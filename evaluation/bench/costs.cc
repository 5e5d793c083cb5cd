#include "costs.h"

#include <linux/tcp.h>  // the C library's tcp_info is an older one
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace far::bench {

std::uint64_t cpu_ns_of(pid_t process) {
  clockid_t clock{};
  timespec used{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(used.tv_nsec);
}

std::uint64_t open_connections_bytes() {
  std::uint64_t all = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string name = entry.path().filename();
    int descriptor = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), descriptor).ec != std::errc()) continue;
    tcp_info seen{};
    socklen_t bytes = sizeof seen;
    // Whatever is no TCP connection has none.
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &seen, &bytes) != 0) continue;
    if (bytes < offsetof(tcp_info, tcpi_segs_out)) continue;
    all += seen.tcpi_bytes_acked + seen.tcpi_bytes_received;
  }
  return all;
}

std::uint64_t cpu_ns_with_descendants(pid_t process) {
  std::uint64_t all = cpu_ns_of(process);
  std::error_code ignored;  // threads come and go
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, ignored)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) all += cpu_ns_with_descendants(child);
  }
  return all;
}

}  // namespace far::bench
