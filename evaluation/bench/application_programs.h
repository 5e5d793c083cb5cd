// The programs of `farheap-bench applications`: those of evaluation/apps on containers, and how each runs in given
// surroundings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "peer_setup.h"

namespace far::bench {

struct application {
  std::string workload;
  std::string name;  // of the program, before "-far" and "-std"
  std::vector<std::string> arguments;
  std::vector<std::string> load = {};  // of a server: the arguments of its client
};

// All of them; `quick`: on less data.
[[nodiscard]] std::vector<application> applications(bool quick);

// The cost of a run.
struct application_outcome {
  double seconds = 0;     // of its work, without making its data
  double cpu_ns = 0;      // of the whole process
  double peak_bytes = 0;  // resident in it
  std::string results;    // the same text for the same results
  double misses = -1;     // -1: it does not tell
  double p50_ns = -1;     // of the latency of a request, likewise
  double p99_ns = -1;
};

// Runs the program `build` of it ("far" or "std") by `launcher`, words that stand before its command, with `more`
// arguments. Fails when it, or the client of a server, does not end within `deadline_ns`.
[[nodiscard]] result<application_outcome> run_application(const application& run, const std::string& build,
                                                          const std::vector<std::string>& launcher,
                                                          const std::vector<std::string>& more,
                                                          std::uint64_t deadline_ns);

// Runs its "std" program as the kernel's peer `kind` does, in a memory cgroup in which `local_bytes` of `all_bytes`
// fit. Fails also when the kernel kills it, or does not let us set it up.
[[nodiscard]] result<application_outcome> run_under_swap(const application& run, peer kind, int cluster,
                                                         std::uint64_t all_bytes, std::uint64_t local_bytes,
                                                         std::uint64_t deadline_ns);

// Starts the server `command`, which says on which port it listens, and runs the client evaluation/apps/cached/load.cc
// on it, with the arguments `load`. The seconds are the client's, the other costs the server's. Fails when the client
// does not end within `deadline_ns`.
[[nodiscard]] result<application_outcome> run_server(const std::vector<std::string>& command,
                                                     const std::vector<std::string>& load, std::uint64_t deadline_ns);

}  // namespace far::bench
