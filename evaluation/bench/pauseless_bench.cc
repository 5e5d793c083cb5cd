// `farheap-bench pauseless`: how long the iterations of a program take while its garbage is evacuated beside it, or
// with the world stopped (AIFM, figure 14).
#include <errno.h>
#include <fmt/format.h>

#include <array>
#include <vector>

#include "base/units.h"
#include "benchmark.h"
#include "common/json.h"
#include "heap_bench.h"

namespace far::bench {

namespace {

struct configuration {
  const char* name;
  const char* evacuation;
};

constexpr std::array configurations = {
    configuration{"no evacuation", "none"},
    configuration{"evacuation beside the program", "beside"},
    configuration{"evacuation with the world stopped", "stopped"},
};
constexpr const char* workload = "iterations";

void record_aims(report& figures) {
  const row_key none{workload, configurations[0].name, 1};
  const row_key beside{workload, configurations[1].name, 1};
  if (!figures.has(beside)) return;
  figures.aim("worst iteration over the median, with evacuation", figures.median(beside, "worst_over_median"), "x", 1.5,
              false);
  if (!figures.has(none)) return;
  figures.note(
      fmt::format("without evacuation the worst iteration takes {:.2f} times the median: that much is this machine's, "
                  "which runs other threads too; in CPU time of the thread {:.2f} times, and {:.2f} with evacuation",
                  figures.median(none, "worst_over_median"), figures.median(none, "worst_cpu_over_median"),
                  figures.median(beside, "worst_cpu_over_median")));
}

line points_of(const evaluation::json& measured, const char* name) {
  line points{name, {}};
  const evaluation::json& times = measured.at("elapsed_ns");
  for (std::size_t i = 0; i < times.size(); ++i) {
    points.points.emplace_back(static_cast<double>(i), times[i].get<double>() / 1e6);
  }
  return points;
}

}  // namespace

result<outcome> run_pauseless(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 5);
  const std::uint64_t bytes = chosen.quick ? 16 * mib : 64 * mib;
  const unsigned iterations = chosen.quick ? 200 : 1000;
  constexpr std::size_t accesses = 20'000;
  report figures("pauseless");
  figures.set("runs", runs);
  figures.set("working_set_bytes", static_cast<double>(bytes));
  figures.set("iterations", iterations);
  figures.set("accesses_per_iteration", static_cast<double>(accesses));
  chart drawn{.file = "pauseless",
              .title = "Iterations while garbage is evacuated",
              .x = {.title = "iteration"},
              .y = {.title = "time, ms", .along = spacing::logarithmic},
              .lines = {},
              .groups = {},
              .series = {}};
  for (unsigned run = 1; run <= runs; ++run) {
    drawn.lines.clear();
    for (const configuration& one : configurations) {
      if (std::string(one.name).find(chosen.only) == std::string::npos) continue;
      fmt::print(stderr, "pauseless: run {} of {}: {}\n", run, runs, one.name);
      const auto measured = measure(figures, {workload, one.name, 1},
                                    {{"benchmark", "pauseless"},
                                     {"evacuation", one.evacuation},
                                     {"bytes", bytes},
                                     {"iterations", iterations},
                                     {"accesses", accesses}});
      if (stop_requested()) return error{"stopped by a signal", EINTR};
      if (measured) drawn.lines.push_back(points_of(*measured, one.name));
    }
  }
  record_aims(figures);
  figures.note("an iteration reads objects of 64 B at random and replaces one in eight; everything is local");
  return outcome{std::move(figures),
                 {{{"median_ns", "median ms", 1e6, 2},
                   {"p99_ns", "p99 ms", 1e6, 2},
                   {"worst_ns", "worst ms", 1e6, 2},
                   {"worst_over_median", "worst/med", 1, 2},
                   {"worst_cpu_over_median", "CPU w/med", 1, 2},
                   {"evacuation_round_ns", "round ms", 1e6, 1},
                   {"evacuated_objects", "k moved", 1000, 0},
                   {"local_bytes", "local MiB", static_cast<double>(mib), 0}},
                  "median_ns",
                  configurations[0].name},
                 {std::move(drawn)}};
}

}  // namespace far::bench
