#include "preload/process_usage.h"

#include <sys/resource.h>

#include <cstdlib>
#include <cstring>

#include "base/units.h"
#include "platform/kept_files.h"

namespace far::preload {
namespace {

std::uint64_t to_ns(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_usec) * 1'000u;
}

// VmHWM counts this program alone; ru_maxrss would also count the programs before exec in this process.
std::uint64_t read_peak_rss_bytes(std::uint64_t otherwise) {
  char text[4096];
  if (!platform::read_kept_text("/proc/self/status", text)) return otherwise;
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
