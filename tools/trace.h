// `farheap trace`: runs a program in little local memory and records its misses.
#pragma once

#include <string>

#include "run.h"

namespace far::tools {

inline constexpr const char* default_trace_local = "64M";

struct trace_options {
  run_options run;        // without a fault mode: it is inline
  std::string directory;  // as typed; empty: farheap-trace.PID
  unsigned sample = 1;    // one miss in so many
};

// Returns the exit code of the program, 128 and its number when a signal ended it; or that of run() when it cannot be
// started.
[[nodiscard]] int trace(const trace_options& chosen);

}  // namespace far::tools
