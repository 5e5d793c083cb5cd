// The list of benchmarks, and the settings of all. To add one: a file with its run function, a line in main.cc.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "report.h"
#include "svg.h"

namespace far::bench {

struct settings {
  unsigned runs = 0;  // 0: the default of the benchmark
  bool quick = false;
  std::uint64_t working_set_bytes = 0;  // 0: the default of the benchmark
  std::string trace;                    // replacement: the file of a traced program
  std::string only;                     // run only configurations whose name contains this text
  std::string workload;                 // run, compiled, applications: only workloads whose name contains this text
  std::vector<unsigned> shares;         // the same: local memory in percent of what they want; empty: the default
};

// The shares to measure, of a benchmark that measures `all` of them by default.
[[nodiscard]] inline std::vector<unsigned> shares_of(const settings& chosen, std::vector<unsigned> all) {
  if (!chosen.shares.empty()) return chosen.shares;
  return chosen.quick ? std::vector<unsigned>{100, 25} : std::move(all);
}

// The result of a benchmark: its figures, and how to print them.
struct outcome {
  report figures;
  table_layout layout;
  std::vector<chart> charts = {};  // for --plot; none: bars of every column of the table
};

// Each runs its configurations round-robin, so that noise of the machine hits all alike, and writes progress to
// standard error. Fails only when nothing could be measured.
[[nodiscard]] result<outcome> run_primitives(const settings& chosen);
[[nodiscard]] result<outcome> run_device(const settings& chosen);
[[nodiscard]] result<outcome> run_pager(const settings& chosen);
[[nodiscard]] result<outcome> run_overhead(const settings& chosen);
[[nodiscard]] result<outcome> run_fiber(const settings& chosen);
[[nodiscard]] result<outcome> run_transport(const settings& chosen);
[[nodiscard]] result<outcome> run_deref(const settings& chosen);
[[nodiscard]] result<outcome> run_objects(const settings& chosen);
[[nodiscard]] result<outcome> run_hybrid(const settings& chosen);
[[nodiscard]] result<outcome> run_pauseless(const settings& chosen);
[[nodiscard]] result<outcome> run_pressure(const settings& chosen);
[[nodiscard]] result<outcome> run_pointers(const settings& chosen);
[[nodiscard]] result<outcome> run_containers(const settings& chosen);
[[nodiscard]] result<outcome> run_offload(const settings& chosen);
[[nodiscard]] result<outcome> run_eden(const settings& chosen);
[[nodiscard]] result<outcome> run_applications(const settings& chosen);
// One of them: web, snappy, analytics, hashmap, cached, graph or wordcount.
[[nodiscard]] result<outcome> run_application(const settings& chosen, const std::string& name);
[[nodiscard]] result<outcome> run_intensity(const settings& chosen);
[[nodiscard]] result<outcome> run_unchanged(const settings& chosen);
[[nodiscard]] result<outcome> run_compiled(const settings& chosen);
[[nodiscard]] result<outcome> run_policies(const settings& chosen);
[[nodiscard]] result<outcome> run_replacement(const settings& chosen);
[[nodiscard]] result<outcome> run_coverage(const settings& chosen);

// Hidden commands, which the benchmarks run in child processes. `specification` is JSON. Return the exit status.
int pager_child(const std::string& specification);
int overhead_child(const std::string& program, bool quick);
int heap_child(const std::string& specification);

// Whether a signal asked to stop; benchmarks look between measurements, undo what they set up, and return an error.
[[nodiscard]] bool stop_requested();

}  // namespace far::bench
