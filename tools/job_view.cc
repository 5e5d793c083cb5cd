#include "job_view.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "control/control.h"
#include "control/statistics_json.h"
#include "platform/clock.h"
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
  const result<int> sent = control::request_job(pid, "");
  if (!sent) return sent.error();
  return preload::job_mapping::look_at(sent.value());
}

// A folder that cannot be read any further gives what was read of it.
std::vector<preload::job_mapping> find_jobs() {
  std::vector<preload::job_mapping> found;
  for (const std::string& directory : preload::job_directories()) {
    std::error_code failure;
    std::vector<std::string> paths;
    std::filesystem::directory_iterator entry(directory, failure);
    for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
      if (preload::is_job_file(entry->path().filename().string())) paths.push_back(entry->path().string());
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

namespace {

// How long all processes together have to answer. One that serves another peer takes control_deadline_ms at most.
constexpr int patience_ms = 2 * control::control_deadline_ms;

// What a process without a job has answered, as a job of one.
result<job_snapshot> snapshot_of(pid_t lone_process, const std::string& reply) {
  const auto counted = nlohmann::json::parse(reply, nullptr, false);
  if (!counted.is_object() || counted.contains("in_job")) {
    return error{"process " + std::to_string(lone_process) + " is part of a job, or speaks another version", EINVAL};
  }
  preload::job_process one;
  one.pid = lone_process;
  one.running = true;
  for (const control::statistic_field& field : control::statistic_fields()) {
    const auto found = counted.find(field.name);
    if (found == counted.end()) continue;
    // Any user's program may answer, and anything.
    if (!found->is_number_unsigned()) {
      return error{"process " + std::to_string(lone_process) + " says of " + field.name + " what is no count", EPROTO};
    }
    one.counted.*field.member = found->get<std::uint64_t>();
  }
  std::ifstream name("/proc/" + std::to_string(lone_process) + "/comm");
  name.getline(one.program, sizeof one.program);
  job_snapshot taken;
  taken.id = static_cast<std::uint64_t>(lone_process);
  taken.totals.counted = one.counted;
  taken.totals.processes = taken.totals.running = 1;
  taken.processes.push_back(one);
  taken.taken_ns = platform::monotonic_clock().now_ns();
  return taken;
}

// All runtimes of this network namespace, those in jobs, too. They listen on "farheap-PID" (control/control.h).
std::vector<pid_t> find_listening_processes() {
  constexpr std::string_view mark = " @farheap-";
  std::set<pid_t> listening;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const std::size_t at = line.find(mark);
    if (at == std::string::npos) continue;
    const std::string digits = line.substr(at + mark.size());
    const result<pid_t> pid = parse_pid(digits.substr(0, digits.find('.')));
    if (pid) listening.insert(pid.value());
  }
  return {listening.begin(), listening.end()};
}

}  // namespace

// It has no shared memory to read: it is asked over its control socket.
result<job_snapshot> take_snapshot(pid_t lone_process) {
  const result<std::string> reply = control::send_control_request(lone_process, "stats");
  if (!reply) return reply.error();
  return snapshot_of(lone_process, reply.value());
}

std::vector<job_snapshot> take_all_snapshots() {
  std::vector<job_snapshot> seen;
  for (const preload::job_mapping& job : find_jobs()) {
    job_snapshot taken = take_snapshot(job);
    if (taken.totals.running > 0) seen.push_back(std::move(taken));
  }
  const std::vector<pid_t> listening = find_listening_processes();
  const std::vector<result<std::string>> replies = control::send_control_requests(listening, "stats", patience_ms);
  for (std::size_t i = 0; i < listening.size(); ++i) {
    if (!replies[i]) continue;  // it has ended, is another user's, or says nothing
    result<job_snapshot> taken = snapshot_of(listening[i], replies[i].value());
    if (taken) seen.push_back(std::move(taken).value());
  }
  return seen;
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
