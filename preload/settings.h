// How `farheap run` configures the runtime inside the program: names of environment variables, and their reader.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "pager/pager.h"

namespace far::preload {

// The value of variable::fault_mode, and of --fault-mode, with which the runtime chooses.
inline constexpr std::string_view automatic_fault_mode = "auto";

// The environment variables. `farheap run` writes them after checking each value; users who set them by hand get the
// same checks from read_settings(), but later and inside the program.
namespace variable {
inline constexpr const char* local_bytes = "FARHEAP_LOCAL_BYTES";              // the budget, in bytes or as "512M"
inline constexpr const char* far_uri = "FARHEAP_FAR";                          // see backend::open
inline constexpr const char* far_uri_under_limit = "FARHEAP_FAR_UNDER_LIMIT";  // see settings
inline constexpr const char* fault_mode = "FARHEAP_FAULT_MODE";                // "auto", "thread" or "inline"
inline constexpr const char* policy = "FARHEAP_POLICY";                        // see engine::policy_names
inline constexpr const char* free_ahead = "FARHEAP_FREE_AHEAD";                // "5%", see engine::eviction_pace
inline constexpr const char* batch = "FARHEAP_BATCH";                          // pages evicted at a time, "1" to "64"
inline constexpr const char* stats_json = "FARHEAP_STATS_JSON";                // an absolute path
inline constexpr const char* verbose = "FARHEAP_VERBOSE";                      // "1" or "0"
inline constexpr const char* trace_directory = "FARHEAP_TRACE_DIR";  // an absolute path: where to record misses
inline constexpr const char* trace_sample = "FARHEAP_TRACE_SAMPLE";  // record one miss in so many; "1": all
inline constexpr const char* object_bytes = "FARHEAP_OBJECT_BYTES";  // "64" to "512", or "0"; see settings
inline constexpr const char* job = "FARHEAP_JOB";                    // see job_name; not set: each for itself
inline constexpr const char* local_each = "FARHEAP_LOCAL_EACH";      // "1": each process has the whole budget
inline constexpr const char* local_auto = "FARHEAP_LOCAL_AUTO";      // "1": the budget is only the first one
inline constexpr const char* main_pid = "FARHEAP_MAIN_PID";          // the process that `farheap run` became
}  // namespace variable

inline constexpr const char* default_far_uri = "file:";
inline constexpr const char* default_policy = "2q";

struct settings {
  bool active = false;  // false: FARHEAP_LOCAL_BYTES is not set; everything else keeps its default
  std::uint64_t budget_bytes = 0;
  std::string far_uri = default_far_uri;
  std::string far_uri_under_limit;        // of a process with a limit on data; empty: far_uri
  std::optional<pager::fault_mode> mode;  // none: auto
  std::string policy = default_policy;    // the name is checked when the engine makes the policy
  engine::eviction_pace pace = {};
  std::string stats_json;                     // empty: none
  std::string trace_directory;                // empty: misses are not recorded
  std::uint32_t trace_sample = 1;             // one miss in so many
  std::optional<std::uint32_t> object_bytes;  // in place of what code of -ffar-objects asks for; 0: whole pages
  bool verbose = false;
  std::string job;          // empty: the process is on its own
  bool local_each = false;  // its processes do not share the budget
  bool local_auto = false;  // the budget of the job follows what the machine can spare
  pid_t main_pid = 0;       // 0: not set; else only the process with this pid reports at its exit

  // Whether the calling process is the one that `farheap run` started, and not a child of it.
  [[nodiscard]] bool in_main_process() const;
};

// Reads the variables through `look_up`, which answers like getenv(3). Allocates only the strings it returns. Errors
// name the variable, its value and a right one.
[[nodiscard]] result<settings> read_settings(const char* (*look_up)(const char* name));

// The same from the process's environment.
[[nodiscard]] result<settings> read_settings();

}  // namespace far::preload
