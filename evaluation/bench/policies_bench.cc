// `farheap-bench policies`: how many pages each policy fetches for an access, by the share of memory that is local, and
// the cost of recording use.
#include <errno.h>
#include <fmt/format.h>

#include <array>
#include <vector>

#include "base/units.h"
#include "benchmark.h"
#include "common/json.h"
#include "heap_bench.h"
#include "report_charts.h"

namespace far::bench {

namespace {

constexpr std::array policies = {"fifo", "2q", "second-chance", "lru:2", "lru:8", "priority"};

struct workload {
  const char* name;
  const char* title;
};

constexpr std::array workloads = {
    workload{"zipf", "popular pages (Zipf, 0.99)"},
    workload{"mixed", "popular pages beside a walk"},
    workload{"loop", "a walk over all, again and again"},
};

constexpr std::array<unsigned, 5> percents = {10, 25, 50, 75, 90};
constexpr const char* recording = "what a hint costs when everything is local";

std::string row_name(const workload& one, unsigned percent) {
  return fmt::format("{}, {}% local", one.title, percent);
}

std::vector<chart> draw(const report& figures) {
  std::vector<chart> drawn;
  for (const workload& one : workloads) {
    chart curves;
    curves.file = fmt::format("policies-{}", one.name);
    curves.title = one.title;
    curves.x = {.title = "local memory, % of all"};
    curves.y = {.title = "pages fetched an access"};
    std::vector<curve_point> points;
    for (const unsigned percent : percents) points.push_back({static_cast<double>(percent), row_name(one, percent)});
    curves.lines = curves_of(figures, {"fetched_pages_per_access", curves.y.title}, points);
    drawn.push_back(std::move(curves));
  }
  return drawn;
}

void measure(const workload& one, const char* policy, std::uint64_t bytes, std::uint64_t local_bytes,
             const std::string& row, report& figures) {
  const auto metrics = run_in_child({{"benchmark", "policies"},
                                     {"workload", one.name},
                                     {"policy", policy},
                                     {"bytes", bytes},
                                     {"local_bytes", local_bytes},
                                     {"visits", bytes / page_bytes * 16}});
  if (!metrics) return figures.skip(policy, fmt::format("{}: {}", row, metrics.error().message));
  add_samples(figures, {row, policy, 1}, metrics.value());
}

}  // namespace

result<outcome> run_policies(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 3);
  const std::uint64_t bytes = chosen.quick ? 192 * mib : 256 * mib;
  report figures("policies");
  figures.set("runs", runs);
  figures.set("working_set_bytes", static_cast<double>(bytes));
  for (unsigned run = 1; run <= runs; ++run) {
    fmt::print(stderr, "policies: run {} of {}\n", run, runs);
    for (const workload& one : workloads) {
      for (const unsigned percent : percents) {
        for (const char* policy : policies) {
          if (stop_requested()) return error{"stopped by a signal", EINTR};
          if (std::string(policy).find(chosen.only) == std::string::npos) continue;
          measure(one, policy, bytes, bytes * percent / 100, row_name(one, percent), figures);
        }
      }
    }
    for (const char* policy : policies) measure(workloads[0], policy, bytes, 2 * bytes, recording, figures);
  }
  figures.note(
      "one thread, hints before every access, memory: as the far tier; the walk beside popular pages has "
      "eviction priority 3; two thirds of the accesses are counted, after the others");
  std::vector<chart> charts = draw(figures);
  return outcome{std::move(figures),
                 {{{"fetched_pages_per_access", "pages in", 1, 4},
                   {"cpu_ns_per_access", "CPU us", 1000, 3},
                   {"hint_ns", "hint ns", 1, 2}},
                  "fetched_pages_per_access",
                  "second-chance"},
                 std::move(charts)};
}

}  // namespace far::bench
