// farheap-bench: measures Farheap beside local memory and its peers, interleaved in one run.
#include <fmt/format.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <string>

#include "base/units.h"
#include "benchmark.h"
#include "common/json.h"
#include "report_charts.h"

namespace far::bench {

namespace {

struct listed {
  const char* name;
  const char* summary;
  result<outcome> (*run)(const settings&);
};

constexpr std::array benchmarks = {
    listed{"pager", "page faults and throughput with a quarter of the memory, beside swap and local memory", run_pager},
    listed{"primitives", "costs of the kernel's calls that move pages, and of replacements made of them",
           run_primitives},
    listed{"device", "a miss over file:, beside a read of a page from the same device", run_device},
    listed{"overhead", "CPU time of programs that fit in their budget, under farheap run and natively", run_overhead},
    listed{"fiber", "the cost of fibers: switching, spawning, waiting, waking, beside threads", run_fiber},
    listed{"transport", "a transfer over each far tier with a server, beside Redis", run_transport},
    listed{"deref", "dereferencing a far pointer, in L1 and out of cache, beside std::unique_ptr", run_deref},
    listed{"objects", "random accesses to far objects with a quarter of the memory, beside swap (AIFM, figure 1)",
           run_objects},
    listed{"hybrid", "object path, page path and the choice between them, as a program changes (Atlas)", run_hybrid},
    listed{"pauseless", "iteration times while objects are evacuated, beside stopping the world (AIFM, figure 14)",
           run_pauseless},
    listed{"pressure", "free local memory under 100 busy fibers, prioritised and not (AIFM, figure 15)", run_pressure},
    listed{"pointers", "lists, trees and maps of far pointers that are all local, beside raw pointers", run_pointers},
    listed{"containers", "far containers that are all local, beside those of std", run_containers},
    listed{"offload", "sums of numbers where they are, and fetched, with a quarter of the memory", run_offload},
    listed{"applications", "programs on far containers in a part of their memory, beside the same on std containers",
           run_applications},
    listed{"web", "of them, the web front end, with the latency of its requests (AIFM, figure 6)",
           [](const settings& chosen) { return run_application(chosen, "web"); }},
    listed{"snappy", "of them, compression and decompression (AIFM, figure 10)",
           [](const settings& chosen) { return run_application(chosen, "snappy"); }},
    listed{"analytics", "of them, analyses of taxi trips (AIFM, figure 8)",
           [](const settings& chosen) { return run_application(chosen, "analytics"); }},
    listed{"hashmap", "of them, look-ups by Zipf's and the uniform distribution (AIFM, figure 9)",
           [](const settings& chosen) { return run_application(chosen, "hashmap"); }},
    listed{"cached", "of them, a cache server under a churning and a uniform load (Atlas, figure 4)",
           [](const settings& chosen) { return run_application(chosen, "cached"); }},
    listed{"graph", "of them, PageRank and triangles of an evolving graph (Atlas, figure 4)",
           [](const settings& chosen) { return run_application(chosen, "graph"); }},
    listed{"wordcount", "of them, words and visitors counted by MapReduce (Atlas, figure 4)",
           [](const settings& chosen) { return run_application(chosen, "wordcount"); }},
    listed{"intensity", "walks with more or less work for each page, beside the same all local (AIFM, figure 13)",
           run_intensity},
    listed{"run", "whole programs, unchanged, in a part of the memory that they want, beside swap", run_unchanged},
    listed{"compiled", "plain programs, recompiled by farheap-clang++, beside clang -O3 and swap (TrackFM, section 4)",
           run_compiled},
    listed{"policies", "pages fetched under each policy, by the share of memory that is local", run_policies},
    listed{"replacement", "misses under each policy on streams of accesses, beside LRU and the optimum",
           run_replacement},
    listed{"coverage", "how few source lines cause 95% of a program's misses (Eden, figure 2)", run_coverage},
    listed{"eden", "programs and single pages with hints and without, beside swap (Eden, figures 6, 7, 8 and 11)",
           run_eden},
};

std::atomic<bool> stop_flag = false;

void on_stop(int /*signal*/) {
  stop_flag.store(true, std::memory_order_relaxed);
}

// Returns 0, or 1 with a message.
int write_json(const evaluation::json& document, const std::string& path) {
  const std::string text = document.dump(2) + "\n";
  FILE* file = path == "-" ? stdout : fopen(path.c_str(), "we");
  bool written = file != nullptr && fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && file != stdout) written = fclose(file) == 0 && written;
  if (written) return 0;
  fmt::print(stderr, "farheap-bench: cannot write {}: {}; give --json a path in a writable directory\n", path,
             strerror(errno));
  return 1;
}

int list_benchmarks() {
  for (const listed& one : benchmarks) fmt::print("{:<12} {}\n", one.name, one.summary);
  return 0;
}

// Returns 0, or 1 with a message.
int write_plots(const outcome& measured, const std::string& folder) {
  const std::vector<chart> drawn =
      measured.charts.empty() ? charts_of(measured.figures, measured.layout) : measured.charts;
  const result<void> written = write_charts(drawn, folder);
  if (written) return 0;
  fmt::print(stderr, "farheap-bench: {}\n", written.error().message);
  return 1;
}

// Where the figures go beside the table on standard output; empty: nowhere.
struct destinations {
  std::string json_path;
  std::string plot_folder;
};

int run_named(const std::string& name, const settings& chosen, const destinations& where) {
  for (const listed& one : benchmarks) {
    if (name != one.name) continue;
    result<outcome> measured = one.run(chosen);
    if (!measured) {
      fmt::print(stderr, "farheap-bench: {}: {}\n", name, measured.error().message);
      return 1;
    }
    if (where.json_path != "-") measured.value().figures.print(measured.value().layout);
    int status = where.json_path.empty() ? 0 : write_json(measured.value().figures.to_json(), where.json_path);
    if (!where.plot_folder.empty()) status |= write_plots(measured.value(), where.plot_folder);
    return status;
  }
  fmt::print(stderr, "farheap-bench: no benchmark is called '{}'; see: farheap-bench list\n", name);
  return 2;
}

}  // namespace

bool stop_requested() {
  return stop_flag.load(std::memory_order_relaxed);
}

}  // namespace far::bench

int main(int argc, char** argv) {
  using namespace far::bench;
  if (argc == 3 && strcmp(argv[1], "pager-child") == 0) return pager_child(argv[2]);
  if (argc == 3 && strcmp(argv[1], "heap-child") == 0) return heap_child(argv[2]);
  if (argc == 4 && strcmp(argv[1], "overhead-child") == 0)
    return overhead_child(argv[2], strcmp(argv[3], "quick") == 0);

  CLI::App app("Measures Farheap, beside local memory and the peers that this machine allows, interleaved in one run.");
  std::string name;
  destinations where;
  std::string working_set;
  settings chosen;
  app.add_option("name", name, "the benchmark to run, or 'list'")->required();
  app.add_option("--json", where.json_path,
                 "also write the figures as JSON to this file ('-': to standard output only)");
  app.add_option("--plot", where.plot_folder, "also write charts (SVG) to this folder");
  app.add_option("--runs", chosen.runs, "how often to measure each configuration")->check(CLI::Range(1u, 1000u));
  app.add_flag("--quick", chosen.quick, "fewer and shorter runs, for a first look");
  app.add_option("--working-set", working_set,
                 "pager, device, deref, objects, hybrid, compiled: how much memory the workloads use, such as 1G");
  app.add_option("--trace", chosen.trace,
                 "replacement: the misses in this file, a misses-PID.trace of a folder that farheap trace has made");
  app.add_option("--only", chosen.only, "measure only configurations whose name contains this text");
  app.add_option("--workload", chosen.workload,
                 "run, compiled, applications, and each of them: only workloads whose name contains this text");
  app.add_option("--shares", chosen.shares,
                 "the same: how much of the memory that they want is local, in percent, such as 50,25")
      ->delimiter(',')
      ->check(CLI::Range(1u, 100u));
  CLI11_PARSE(app, argc, argv);

  if (!working_set.empty()) {
    const far::result<std::uint64_t> parsed = far::parse_size(working_set);
    if (!parsed) {
      fmt::print(stderr, "farheap-bench: {}\n", parsed.error().message);
      return 2;
    }
    chosen.working_set_bytes = parsed.value();
  }
  if (name == "list") return list_benchmarks();
  if (!chosen.trace.empty() && name != "replacement") {
    fmt::print(stderr, "farheap-bench: --trace is for: farheap-bench replacement\n");
    return 2;
  }
  // No SA_RESTART: waits end early, and what was set up is undone on the way out.
  struct sigaction action{};
  action.sa_handler = on_stop;
  for (const int stopping : {SIGINT, SIGTERM, SIGHUP}) sigaction(stopping, &action, nullptr);
  return run_named(name, chosen, where);
}
