// `farheap-bench intensity`: how much work a program does for each page until the latency of the far tier is hidden
// (AIFM, figure 13).
#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "benchmark.h"
#include "common/json.h"
#include "heap_bench.h"
#include "report_charts.h"

namespace far::bench {

namespace {

constexpr const char* local_name = "all local";
constexpr const char* far_name = "a quarter local";
constexpr std::array names = {local_name, far_name};

// Of work for each page: a multiplication and its load, one after the other. About 1.5 ns each.
constexpr std::array steps = {0u, 50u, 150u, 350u, 700u, 1400u, 3500u, 7000u};

constexpr double hidden_from_ns = 1000;  // of work for a page
constexpr double hidden_ratio = 1.05;

std::string workload_of(unsigned count) {
  return fmt::format("{} steps a page", count);
}

}  // namespace

result<outcome> run_intensity(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 5);
  const std::uint64_t bytes = std::max<std::uint64_t>(
      chosen.working_set_bytes != 0 ? chosen.working_set_bytes : (chosen.quick ? 64 : 512) * mib, 64 * mib);
  report figures("intensity");
  figures.set("runs", runs);
  figures.set("bytes", static_cast<double>(bytes));
  for (unsigned run = 1; run <= runs; ++run) {
    for (const unsigned count : steps) {
      for (const char* const name : names) {
        if (stop_requested()) return error{"stopped by a signal", EINTR};
        if (std::string(name).find(chosen.only) == std::string::npos) continue;
        fmt::print(stderr, "intensity: run {} of {}: {}, {}\n", run, runs, workload_of(count), name);
        static_cast<void>(measure(figures, {workload_of(count), name, 1},
                                  {{"benchmark", "intensity"},
                                   {"pages", bytes / page_bytes},
                                   {"steps", count},
                                   {"local_bytes", name == far_name ? bytes / 4 : bytes + 64 * mib}}));
      }
    }
  }
  std::vector<curve_point> points;
  for (const unsigned count : steps) {
    const double local_ns = figures.median({workload_of(count), local_name, 1}, "elapsed_ns");
    const double far_ns = figures.median({workload_of(count), far_name, 1}, "elapsed_ns");
    if (local_ns > 0) points.push_back({local_ns / 1000, workload_of(count)});
    if (far_ns <= 0 || local_ns < hidden_from_ns) continue;
    figures.aim(fmt::format("{:.1f} us of work a page: time over '{}'", local_ns / 1000, local_name), far_ns / local_ns,
                "x", hidden_ratio, false);
  }
  figures.note("times are those of a page of 4 KiB, read and worked on; one fiber walks over all");
  chart drawn;
  drawn.file = "intensity";
  drawn.title = "Walks with work for each page";
  drawn.x = {"work, us a page"};
  drawn.y = {"time, us a page", spacing::logarithmic};
  drawn.lines = curves_of(figures, {"elapsed_ns", "time, us a page", 1e3}, points);
  return outcome{
      std::move(figures),
      {{{"elapsed_ns", "ns a page", 1, 0}, {"waits", "waits a page", 1, 4}, {"fetched", "fetched a page", 1, 3}},
       "elapsed_ns",
       local_name},
      {std::move(drawn)}};
}

}  // namespace far::bench
