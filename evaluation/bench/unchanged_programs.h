// The programs of `farheap-bench run`: those of evaluation/apps/unchanged, and how each runs in given surroundings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace far::bench {

struct unchanged_program {
  std::string name;
  std::vector<std::string> command;
  bool is_server = false;  // its driver starts it, by what is given as a launcher
};

// All of them; `quick`: on less data.
[[nodiscard]] std::vector<unchanged_program> unchanged_programs(bool quick);

// Makes the Python environment that they need. Fails with what to do about it.
[[nodiscard]] result<void> prepare_unchanged_programs();

// The cost of a run. Of a server, figures of its process; of the other programs, all of it.
struct unchanged_outcome {
  double seconds = 0;  // of its work, without start-up
  double cpu_ns = 0;
  double peak_bytes = 0;  // resident in the process
  std::string checksum;
  // 0 where the program does not tell:
  double operations_per_s = 0;
  double p50_ns = 0;
  double p99_ns = 0;
  double read_ns = 0;
  // In its whole life; 0 without the runtime:
  double misses = 0;
  double fetched_pages = 0;
};

// Runs it by `launcher`: words that stand before its command, none to run it natively. `stats_file`: where the launcher
// leaves the runtime's statistics, or nothing.
[[nodiscard]] result<unchanged_outcome> run_unchanged_program(const unchanged_program& run,
                                                              const std::vector<std::string>& launcher,
                                                              const std::string& stats_file);

}  // namespace far::bench
