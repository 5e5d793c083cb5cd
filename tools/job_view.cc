#include "job_view.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "platform/clock.h"
#include "preload/control.h"
#include "program.h"

namespace far::tools {

job_snapshot take_snapshot(const preload::job_mapping& job) {
  const preload::job_region& region = job.region();
  job_snapshot taken;
  taken.id = region.secret[0].load() ^ region.secret[1].load();
  taken.shares = region.shares.load() != 0;
  taken.totals = preload::totals_of(region);
  preload::job_process one;
  for (std::size_t i = 0; i < preload::job_slots; ++i) {
    if (!preload::read_process(region, i, one)) continue;
    if (one.running && !job.is_locked_elsewhere(preload::job_mapping::lock_of_slot(i))) {
      one.running = false;
      --taken.totals.running;
    }
    taken.processes.push_back(one);
  }
  std::stable_sort(taken.processes.begin(), taken.processes.end(),
                   [](const auto& left, const auto& right) { return left.started_ns < right.started_ns; });
  taken.taken_ns = platform::monotonic_clock().now_ns();
  return taken;
}

result<preload::job_mapping> find_job(pid_t pid) {
  const result<int> sent = preload::request_job(pid, "");
  if (!sent) return sent.error();
  return preload::job_mapping::look_at(sent.value());
}

std::vector<preload::job_mapping> find_jobs() {
  std::vector<preload::job_mapping> found;
  for (const std::string& directory : preload::job_directories()) {
    std::error_code failure;
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory, failure)) {
      if (preload::is_job_file(entry.path().filename().string())) paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      // Those of other users cannot be opened.
      result<preload::job_mapping> opened = preload::job_mapping::look_at(path);
      if (opened && take_snapshot(opened.value()).totals.running > 0) found.push_back(std::move(opened).value());
    }
  }
  return found;
}

result<pid_t> parse_pid(const std::string& text) {
  pid_t pid = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, pid);
  if (failure != std::errc{} || rest != end || pid <= 0) {
    return error{"'" + text + "' is not a process id; write the number that `pgrep PROGRAM` prints", exit_usage};
  }
  return pid;
}

}  // namespace far::tools
