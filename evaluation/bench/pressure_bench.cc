// `farheap-bench pressure`: how much local memory is free over time when 100 busy fibers use it up, and they yield to
// the evictor, or do not (AIFM, figure 15).
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
  bool prioritises;
};

constexpr std::array configurations = {
    configuration{"fibers yield under pressure", true},
    configuration{"fibers do not yield", false},
};

line points_of(const evaluation::json& measured, const char* name) {
  line points{name, {}};
  for (const evaluation::json& one : measured.at("free_percent_over_ms")) {
    points.points.emplace_back(one[0].get<double>(), one[1].get<double>());
  }
  return points;
}

}  // namespace

result<outcome> run_pressure(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 5);
  const std::uint64_t local_bytes = chosen.quick ? 16 * mib : 64 * mib;
  const std::uint64_t bytes = 4 * local_bytes;
  const std::uint64_t for_ns = chosen.quick ? 500'000'000 : 3'000'000'000;
  report figures("pressure");
  figures.set("runs", runs);
  figures.set("working_set_bytes", static_cast<double>(bytes));
  figures.set("local_bytes", static_cast<double>(local_bytes));
  figures.set("fibers", 100);
  chart drawn{.file = "pressure",
              .title = "Free local memory under 100 busy fibers",
              .x = {.title = "time, ms"},
              .y = {.title = "free, % of the budget"},
              .lines = {},
              .groups = {},
              .series = {}};
  for (unsigned run = 1; run <= runs; ++run) {
    drawn.lines.clear();
    for (const configuration& one : configurations) {
      if (std::string(one.name).find(chosen.only) == std::string::npos) continue;
      fmt::print(stderr, "pressure: run {} of {}: {}\n", run, runs, one.name);
      const auto measured = measure(figures, {"100 busy fibers", one.name, 1},
                                    {{"benchmark", "pressure"},
                                     {"prioritises", one.prioritises},
                                     {"bytes", bytes},
                                     {"local_bytes", local_bytes},
                                     {"for_ns", for_ns}});
      if (stop_requested()) return error{"stopped by a signal", EINTR};
      if (measured) drawn.lines.push_back(points_of(*measured, one.name));
    }
  }
  figures.note(
      fmt::format("three of four accesses write an object of 256 B at random, one makes a new one; {}, a quarter "
                  "is local; free memory is looked at every 0.5 ms",
                  network_uri));
  return outcome{std::move(figures),
                 {{{"free_median_share", "free, med", 0.01, 2},
                   {"free_p1_share", "free, p1", 0.01, 2},
                   {"free_least_share", "least %", 0.01, 2},
                   {"time_below_1_percent_share", "time < 1%", 0.01, 1},
                   {"accesses_per_s", "k acc/s", 1000, 1},
                   {"p99_ns", "p99 us", 1000, 1},
                   {"max_ns", "max ms", 1e6, 2},
                   {"cpu_ns_per_access", "CPU us", 1000, 2}},
                  "accesses_per_s",
                  configurations[0].name},
                 {std::move(drawn)}};
}

}  // namespace far::bench
