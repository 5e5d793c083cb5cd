// Jobs, looked at from outside.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "preload/job.h"

namespace far::tools {

struct job_snapshot {
  std::uint64_t id = 0;  // of the job, as long as it runs
  bool shares = true;    // whether its processes share the budget
  preload::job_totals totals;
  std::vector<preload::job_process> processes;  // the first is the oldest
  std::uint64_t taken_ns = 0;                   // CLOCK_MONOTONIC
};

// The last reports of the job's processes; those that were killed a moment ago count as ended.
[[nodiscard]] job_snapshot take_snapshot(const preload::job_mapping& job);

// The job of a process. Errors say what to do.
[[nodiscard]] result<preload::job_mapping> find_job(pid_t pid);

// All jobs of this user on this machine in which something runs; of all users for root.
[[nodiscard]] std::vector<preload::job_mapping> find_jobs();

// A process with a runtime of its own, outside jobs (far::runtime), as a job of itself. Errors say what to do.
[[nodiscard]] result<job_snapshot> take_snapshot(pid_t lone_process);

// All jobs of this user in which something runs, and all such processes of this network namespace; of all users for
// root. Processes that do not answer are left out after a second, however many there are.
[[nodiscard]] std::vector<job_snapshot> take_all_snapshots();

// `text` as a process number, or an error with the exit code for wrong usage.
[[nodiscard]] result<pid_t> parse_pid(const std::string& text);

}  // namespace far::tools
