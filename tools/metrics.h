// `farheap metrics`: the counters of the programs under `farheap run`, and of those with a far::runtime, for
// Prometheus.
#pragma once

#include <string>
#include <vector>

#include "job_view.h"

namespace far::tools {

struct metrics_options {
  std::string listen;      // "ADDR:PORT"; empty: prints the text once
  std::string token_file;  // readers of the port must know its token; empty: on loopback, nobody has to
};

// The text format of Prometheus, version 0.0.4: a sample for each counter of each running process, with the labels
// `pid`, `program`, and `job`, the process number of the oldest process of its job. Times are in seconds.
[[nodiscard]] std::string prometheus_text(const std::vector<job_snapshot>& jobs);

// Serves /metrics until SIGINT or SIGTERM, or prints the text. Returns the exit code, after one line on standard error
// when it is not 0.
[[nodiscard]] int metrics(const metrics_options& chosen);

}  // namespace far::tools
