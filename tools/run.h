// `farheap run`: checks everything that can be checked beforehand, then becomes the program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace far::tools {

// As typed; an empty string is "not given".
struct run_options {
  std::string local;
  std::string far_uri;
  std::string fault_mode;
  std::string policy;
  std::string free_ahead;
  std::string batch;
  std::string stats_json;
  std::string object_bytes;  // of preload::settings
  bool local_each = false;   // every process of the tree gets `local`
  bool verbose = false;
  std::string trace_directory;  // absolute, there; empty: misses are not recorded
  unsigned trace_sample = 1;
  std::vector<std::string> program;  // with its arguments
};

// Runs the program in place of this process; natively, after one line of warning, where this system permits no fault
// mode at all and none was asked for. Returns only when it cannot: the exit code, after one line on standard error. 2:
// wrong usage, 127: no such program, 126: not executable, 1: anything else.
[[nodiscard]] int run(const run_options& chosen);

// The far tier of a run without --far, with such a budget. Fails where the machine's memory cannot be read.
[[nodiscard]] result<std::string> default_far_uri(std::uint64_t budget_bytes);

// The library that `farheap run` preloads: ../lib/farheap/libfarheap-preload.so, seen from this executable, or
// ../lib/libfarheap-preload.so in a build folder.
[[nodiscard]] result<std::string> find_preload_library();

}  // namespace far::tools
