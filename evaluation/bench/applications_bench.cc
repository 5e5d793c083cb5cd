// `farheap-bench applications`: programs on far containers in a part of the memory that they want, beside the same
// source on the standard library's containers: all local, under `farheap run`, and under Linux swap (AIFM, figures 6 to
// 11; Atlas, figure 4).
#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "application_programs.h"
#include "base/units.h"
#include "benchmark.h"
#include "child.h"
#include "clocks.h"
#include "common/json.h"
#include "heap_bench.h"
#include "peer_setup.h"
#include "report_charts.h"

namespace far::bench {

namespace {

constexpr const char* local_name = "std containers, all local";
constexpr const char* far_name = "far containers";
constexpr const char* door_name = "std containers, farheap run";
constexpr const char* swap_prefix = "swap, ";

struct configuration {
  const char* name;
  bool is_far = false;
  bool is_door = false;
  peer kind = peer::none;
  int cluster = 3;  // page-cluster, for swap
};

constexpr std::array configurations = {
    configuration{.name = far_name, .is_far = true},
    configuration{.name = door_name, .is_door = true},
    configuration{.name = "swap, loop in RAM, page-cluster 3", .kind = peer::loop_swap},
    configuration{.name = "swap, loop in RAM, page-cluster 0", .kind = peer::loop_swap, .cluster = 0},
    configuration{.name = "swap, zram, page-cluster 3", .kind = peer::zram_swap},
    configuration{.name = "swap, zram, page-cluster 0", .kind = peer::zram_swap, .cluster = 0},
};

// What takes longer than so many times everything local is given up: it would hold up all others and misses every aim.
constexpr double slowest_times = 60;
constexpr std::uint64_t least_deadline_ns = 20'000'000'000;
constexpr std::uint64_t local_deadline_ns = 300'000'000'000;

// Everything that is known of a program before it is measured in less memory.
struct measured {
  application run;
  double peak_bytes = 0;  // with everything local
  double whole_ns = 0;    // likewise, from its start to its end
  std::string results = {};
};

std::string row_of(const measured& program, unsigned percent) {
  return fmt::format("{}, {}%", program.run.workload, percent);
}

void add_figures(report& figures, const row_key& key, const application_outcome& run) {
  figures.add(key, "elapsed_ns", run.seconds * 1e9);
  figures.add(key, "cpu_ns", run.cpu_ns);
  figures.add(key, "peak_bytes", run.peak_bytes);
  if (run.misses >= 0) figures.add(key, "misses", run.misses);
  if (run.p99_ns >= 0) {
    figures.add(key, "p50_ns", run.p50_ns);
    figures.add(key, "p99_ns", run.p99_ns);
  }
}

result<application_outcome> run_with(const configuration& how, const measured& program, unsigned percent) {
  // Where all is local, Farheap has as much as it wants.
  const auto all_bytes = static_cast<std::uint64_t>(program.peak_bytes);
  const std::uint64_t local_bytes = percent >= 100 ? 2 * all_bytes + 64 * mib : all_bytes * percent / 100;
  if (local_bytes < 16 * mib) return error{"the share is below 16 MiB, the least that Farheap takes", EINVAL};
  const std::string local = std::to_string(local_bytes);
  const auto deadline_ns = std::max(least_deadline_ns, static_cast<std::uint64_t>(slowest_times * program.whole_ns));
  if (how.is_far) return run_application(program.run, "far", {}, {"--local", local, "--far", network_uri}, deadline_ns);
  if (how.is_door) {
    return run_application(program.run, "std",
                           {product("farheap"), "run", "--local", local, "--far", network_uri, "--"}, {}, deadline_ns);
  }
  return run_under_swap(program.run, how.kind, how.cluster, all_bytes, local_bytes, deadline_ns);
}

result<void> measure_local(measured& program, const std::vector<unsigned>& percents, report& figures) {
  const std::uint64_t start_ns = monotonic_ns();
  const auto ran = run_application(program.run, "std", {}, {}, local_deadline_ns);
  if (!ran) return ran.error();
  if (!program.results.empty() && program.results != ran.value().results) {
    return error{"two runs have different results", EILSEQ};
  }
  program.results = ran.value().results;
  program.peak_bytes = std::max(program.peak_bytes, ran.value().peak_bytes);
  program.whole_ns = std::max(program.whole_ns, static_cast<double>(monotonic_ns() - start_ns));
  for (const unsigned percent : percents) add_figures(figures, {row_of(program, percent), local_name, 1}, ran.value());
  return {};
}

void run_once(const settings& chosen, const std::vector<unsigned>& percents, std::vector<measured>& programs,
              report& figures) {
  for (measured& program : programs) {
    if (stop_requested()) return;
    fmt::print(stderr, "applications: {}, {}\n", program.run.workload, local_name);
    if (const result<void> done = measure_local(program, percents, figures); !done) {
      figures.skip(local_name, fmt::format("{}: {}", program.run.workload, done.error().message));
      continue;
    }
    for (const unsigned percent : percents) {
      for (const configuration& how : configurations) {
        // Where everything fits there is nothing to swap.
        if (percent >= 100 && how.kind != peer::none) continue;
        if (stop_requested() || std::string(how.name).find(chosen.only) == std::string::npos) continue;
        fmt::print(stderr, "applications: {}, {}\n", row_of(program, percent), how.name);
        auto ran = run_with(how, program, percent);
        if (ran && ran.value().results != program.results) ran = error{"its results are other ones", EILSEQ};
        if (ran) {
          add_figures(figures, {row_of(program, percent), how.name, 1}, ran.value());
        } else {
          figures.skip(how.name, fmt::format("{}: {}", row_of(program, percent), ran.error().message));
        }
      }
    }
  }
}

// ---- aims ----

struct aimed {
  const char* workload;  // how it begins
  unsigned percent;
  const char* peer;         // how the peer's name begins
  double times;             // its speed, at least; or its latency, at most
  bool is_latency = false;  // its 99th percentile
};

constexpr std::array aims = {
    aimed{"web", 20, local_name, 0.9},
    aimed{"web", 20, swap_prefix, 10},
    aimed{"web, open loop", 20, local_name, 5, true},
    aimed{"hashmap, zipf", 50, local_name, 0.9},
    aimed{"hashmap, uniform", 25, swap_prefix, 15},
    aimed{"snappy", 5, local_name, 0.95},
    aimed{"analytics", 20, local_name, 0.6},
    aimed{"analytics", 20, swap_prefix, 3},
    aimed{"cached, churning zipf", 25, swap_prefix, 2},
    aimed{"cached, churning zipf", 25, door_name, 1},
    aimed{"graph", 25, swap_prefix, 3},
    aimed{"wordcount", 25, swap_prefix, 3},
};

// The least of a metric among the configurations of a row whose name begins so; 0 when there is none.
double best_of(const report& figures, const std::string& row, const std::string& prefix, const char* metric) {
  double best = 0;
  for (const row_key& key : figures.keys()) {
    if (key.workload != row || !key.configuration.starts_with(prefix)) continue;
    const double taken = figures.median(key, metric);
    best = best == 0 ? taken : std::min(best, taken);
  }
  return best;
}

void compare(const std::vector<measured>& programs, report& figures) {
  for (const measured& program : programs) {
    for (const aimed& one : aims) {
      // An open loop takes as long as there are requests.
      const bool is_of_it = one.is_latency ? program.run.workload == one.workload
                                           : program.run.workload.starts_with(one.workload) &&
                                                 !program.run.workload.ends_with("open loop");
      if (!is_of_it) continue;
      const char* const metric = one.is_latency ? "p99_ns" : "elapsed_ns";
      const std::string row = row_of(program, one.percent);
      const double mine = figures.median({row, far_name, 1}, metric);
      const double best = best_of(figures, row, one.peer, metric);
      if (mine <= 0 || best <= 0) continue;
      if (one.is_latency) {
        figures.aim(fmt::format("{}: 99th percentile over '{}'", row, one.peer), mine / best, "x", one.times, false);
      } else {
        figures.aim(fmt::format("{}: speed over '{}'", row, one.peer), best / mine, "x", one.times, true);
      }
    }
  }
}

std::vector<chart> draw(const std::vector<unsigned>& percents, const std::vector<measured>& programs,
                        const report& figures) {
  std::vector<chart> drawn;
  for (const measured& program : programs) {
    std::vector<curve_point> points;
    for (const unsigned percent : percents) points.push_back({static_cast<double>(percent), row_of(program, percent)});
    chart& added = drawn.emplace_back();
    added.file = "applications-" + program.run.workload;
    std::erase(added.file, ',');
    std::ranges::replace(added.file, ' ', '-');
    added.title = program.run.workload;
    added.x = {"local memory, % of what it wants"};
    added.y = {"time, s", spacing::logarithmic};
    added.lines = curves_of(figures, {"elapsed_ns", "time, s", 1e9}, points);
  }
  return drawn;
}

// `only`: the program, or empty for all.
result<outcome> measure_programs(const settings& chosen, const std::string& name, const std::string& only) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 3);
  const std::vector<unsigned> percents = shares_of(chosen, {100, 75, 50, 25, 20, 10, 5});
  std::vector<measured> programs;
  for (application& run : applications(chosen.quick)) {
    const std::string program = product("apps/" + run.name + "-far");
    if (!only.empty() && run.name != only) continue;
    if (run.workload.find(chosen.workload) == std::string::npos) continue;
    if (access(program.c_str(), X_OK) != 0) {
      return error{fmt::format("{} is not there; build it first: make examples", program), ENOENT};
    }
    programs.push_back({.run = std::move(run)});
  }
  if (programs.empty()) return error{fmt::format("no workload's name contains '{}'", chosen.workload), EINVAL};
  report figures(name);
  figures.set("runs", runs);
  for (unsigned run = 1; run <= runs; ++run) {
    fmt::print(stderr, "{}: run {} of {}\n", name, run, runs);
    run_once(chosen, percents, programs, figures);
    if (stop_requested()) return error{"stopped by a signal; devices, swap and cgroups are undone", EINTR};
  }
  compare(programs, figures);
  figures.note(
      fmt::format("the far tier is {}; the share is of the most that the process on std containers holds with "
                  "everything local; at 100% Farheap has more than that",
                  network_uri));
  figures.note("far containers: the budget is for elements; indices of hash maps and the program are beside it");
  figures.note(
      fmt::format("peers run in a memory cgroup of the same size plus {}, the kernel's own CPU time "
                  "is not in theirs",
                  format_size(peer_allowance_bytes)));
  figures.note(
      fmt::format("what takes more than {} times as long as with everything local is given up", slowest_times));
  table_layout layout{{{"elapsed_ns", "time s", 1e9, 2},
                       {"cpu_ns", "CPU s", 1e9, 2},
                       {"peak_bytes", "peak MiB", static_cast<double>(mib), 0},
                       {"misses", "k misses", 1e3, 1},
                       {"p99_ns", "p99 us", 1e3, 0}},
                      "elapsed_ns",
                      local_name};
  std::vector<chart> charts = draw(percents, programs, figures);
  return outcome{std::move(figures), std::move(layout), std::move(charts)};
}

}  // namespace

result<outcome> run_applications(const settings& chosen) {
  return measure_programs(chosen, "applications", "");
}

result<outcome> run_application(const settings& chosen, const std::string& name) {
  return measure_programs(chosen, name, name);
}

}  // namespace far::bench
