#include "clocks.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <string>
#include <vector>

namespace far::bench {

namespace {

std::uint64_t nanoseconds_of(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_usec) * 1000u;
}

// Kernel threads are the children of process 2, and have no memory of their own.
bool is_kernel_thread(const std::string& process_directory) {
  FILE* file = fopen((process_directory + "/stat").c_str(), "re");
  if (file == nullptr) return false;
  char line[512] = {};
  const bool read = fgets(line, sizeof line, file) != nullptr;
  fclose(file);
  const char* after_name = read ? strrchr(line, ')') : nullptr;
  char state = 0;
  int parent = 0;
  return after_name != nullptr && sscanf(after_name + 1, " %c %d", &state, &parent) == 2 && parent == 2;
}

}  // namespace

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t process_cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return nanoseconds_of(usage.ru_utime) + nanoseconds_of(usage.ru_stime);
}

std::uint64_t thread_cpu_ns() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(used.tv_nsec);
}

tick_scale calibrate_ticks() {
  constexpr std::uint64_t window_ns = 30'000'000;
  const std::uint64_t start_ns = monotonic_ns();
  const std::uint64_t start_ticks = ticks_now();
  std::vector<double> gaps;
  std::uint64_t end_ns = start_ns;
  while (end_ns - start_ns < window_ns) {
    const std::uint64_t first = ticks_now();
    const std::uint64_t second = ticks_now();
    if (gaps.size() < 100'000) gaps.push_back(static_cast<double>(second - first));
    end_ns = monotonic_ns();
  }
  const std::uint64_t end_ticks = ticks_now();
  std::nth_element(gaps.begin(), gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2), gaps.end());
  return {
      static_cast<double>(end_ns - start_ns) / static_cast<double>(std::max<std::uint64_t>(1, end_ticks - start_ticks)),
      gaps[gaps.size() / 2]};
}

result<std::uint64_t> kernel_threads_cpu_ns() {
  DIR* directory = opendir("/proc");
  if (directory == nullptr) return error{"cannot list /proc: " + std::string(strerror(errno)), errno};
  std::uint64_t total_ns = 0;
  bool any = false;
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    const std::string process_directory = std::string("/proc/") + entry->d_name;
    if (!is_kernel_thread(process_directory)) continue;
    FILE* file = fopen((process_directory + "/schedstat").c_str(), "re");
    if (file == nullptr) continue;  // ended since it was listed, or the kernel keeps no such statistics
    unsigned long long run_ns = 0;
    if (fscanf(file, "%llu", &run_ns) == 1) {
      total_ns += run_ns;
      any = true;
    }
    fclose(file);
  }
  closedir(directory);
  if (!any) return error{"this kernel does not tell the run time of its threads (/proc/PID/schedstat)", 0};
  return total_ns;
}

}  // namespace far::bench
