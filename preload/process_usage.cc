#include "preload/process_usage.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/units.h"

namespace far::preload {
namespace {

std::uint64_t to_ns(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_usec) * 1'000u;
}

// VmHWM counts this program alone; ru_maxrss would also count the programs before exec in this process.
std::uint64_t read_peak_rss_bytes(std::uint64_t otherwise) {
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return otherwise;
  char text[4096];
  const ssize_t got = read(file, text, sizeof text - 1);
  close(file);
  if (got <= 0) return otherwise;
  text[got] = 0;
  const char* line = std::strstr(text, "VmHWM:");
  return line == nullptr ? otherwise : std::strtoull(line + std::strlen("VmHWM:"), nullptr, 10) * kib;
}

}  // namespace

process_usage read_process_usage() noexcept {
  process_usage used;
  rusage counted{};
  if (getrusage(RUSAGE_SELF, &counted) == 0) {
    used.user_ns = to_ns(counted.ru_utime);
    used.system_ns = to_ns(counted.ru_stime);
  }
  used.peak_rss_bytes = read_peak_rss_bytes(static_cast<std::uint64_t>(counted.ru_maxrss) * kib);
  return used;
}

}  // namespace far::preload
