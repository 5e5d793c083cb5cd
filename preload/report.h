// The report at the end of the program: one line on standard error, and a JSON file.
//
// This runs inside other programs while they exit, so it formats into buffers on the stack and writes with plain system
// calls; only errors allocate.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "control/statistics_json.h"
#include "engine/statistics.h"
#include "preload/job.h"
#include "preload/process_usage.h"

namespace far::preload {

using control::format_statistics_json;
using control::statistic_field;
using control::statistic_fields;
using control::statistics_json_bytes;

struct run_report {
  engine::statistics counted;
  process_usage used;
  pid_t pid = 0;
  std::uint64_t elapsed_ns = 0;
  const char* program = "";     // as it was started; any bytes
  const char* far_uri = "";     // JSON key "far"
  const char* fault_mode = "";  // "thread" or "inline"
  const char* policy = "";
  // The job whose figures `counted` and `used` are; null: they are those of this process.
  const job_region* processes = nullptr;
  job_totals totals;
};

// Logs "farheap: peak local 512 MiB of 512 MiB, far 1.42 GiB, 12345 misses, 45678 prefetch hits, waited 1.23 s", and of
// several processes "; 5 processes, 2 still running".
void log_exit_line(const engine::statistics& counted, std::uint64_t processes = 1, std::uint64_t running = 0) noexcept;

// Enough for format_stats_json() whatever the report holds.
inline constexpr std::size_t stats_json_bytes = 16384;

// Writes the report, but for the list of the job's processes, as one JSON object on one line, with a final newline,
// into `text`; strings longer than about 1000 bytes are cut, bytes that are not UTF-8 become U+FFFD. Returns the
// length. Requires text.size() >= stats_json_bytes.
[[nodiscard]] std::size_t format_stats_json(const run_report& report, std::span<char> text) noexcept;

// Replaces the file `path` by the report and the list "processes" of its job, in one step: readers see the old file or
// the whole new one, with mode 0600. A file that is not a regular one (a pipe, /dev/stdout) is written to instead.
// Errors name the path.
[[nodiscard]] result<void> write_stats_json(const char* path, const run_report& report);

}  // namespace far::preload
