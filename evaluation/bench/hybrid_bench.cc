// `farheap-bench hybrid`: programs that change what they do, under the object path, the page path, and the choice
// between them page by page (Atlas, section 5).
#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "benchmark.h"
#include "common/json.h"
#include "heap_bench.h"

namespace far::bench {

namespace {

struct configuration {
  const char* name;
  double page_path_share;
};

constexpr std::array configurations = {
    configuration{"object path", 2},
    configuration{"page path", 0},
    configuration{"adaptive", 0.8},
};
constexpr const char* adaptive_name = configurations[2].name;

struct program {
  const char* name;
  unsigned phases;
};

constexpr std::array programs = {program{"scattered and dense", 4}, program{"shifting hot sets", 4}};
constexpr const char* whole = "whole program";

std::string workload_name(const program& one, const std::string& phase) {
  return fmt::format("{}: {}", one.name, phase);
}

// The first half of a phase's rounds warms up. A sample is the sum of the other half over all phases of one kind; the
// whole program counts from its start.
void record(const evaluation::json& rounds, const program& one, unsigned rounds_a_phase, const char* name,
            report& figures) {
  struct sum {
    double rounds = 0;
    double accesses = 0;
    double elapsed_ns = 0;
    std::map<std::string, double> weighted;
  };
  std::map<std::string, sum> sums;
  for (const evaluation::json& round : rounds) {
    const evaluation::json& metrics = round.at("metrics");
    const double elapsed_ns = metrics.at("elapsed_ns");
    const double accesses = metrics.at("accesses_per_s").get<double>() * elapsed_ns / 1e9;
    const bool warm = round.at("round").get<unsigned>() >= rounds_a_phase / 2;
    for (const std::string& phase : {round.at("phase").get<std::string>(), std::string(whole)}) {
      if (phase != whole && !warm) continue;
      sum& into = sums[phase];
      into.rounds += 1;
      into.accesses += accesses;
      into.elapsed_ns += elapsed_ns;
      for (const auto& [metric, value] : metrics.items()) {
        if (metric.ends_with("_per_access")) into.weighted[metric] += value.get<double>() * accesses;
      }
    }
  }
  for (const auto& [phase, total] : sums) {
    const row_key key{workload_name(one, phase), name, 1};
    figures.add(key, "accesses_per_s", total.accesses / total.elapsed_ns * 1e9);
    figures.add(key, "elapsed_ns", total.elapsed_ns);
    for (const auto& [metric, value] : total.weighted) figures.add(key, metric, value / total.accesses);
  }
}

void record_aims(report& figures) {
  for (const program& one : programs) {
    for (const char* phase : {"scattered", "dense", "hot set", whole}) {
      const std::string workload = workload_name(one, phase);
      double forced = 0;
      for (const configuration& other : configurations) {
        if (other.name == adaptive_name) continue;
        forced = std::max(forced, figures.median({workload, other.name, 1}, "accesses_per_s"));
      }
      const double adaptive = figures.median({workload, adaptive_name, 1}, "accesses_per_s");
      if (forced <= 0 || adaptive <= 0) continue;
      // Both paths are right for a part of the first program.
      const double least = std::string_view(phase) == whole && &one == &programs[0] ? 5 : 0.95;
      figures.aim(fmt::format("{}: adaptive over the better forced path", workload), adaptive / forced, "x", least,
                  true);
    }
  }
}

// Throughput round by round, of the last run.
chart draw(const program& one) {
  chart drawn;
  drawn.file = std::string("hybrid-") + (&one == &programs[0] ? "phases" : "hot-sets");
  drawn.title = one.name;
  drawn.x = {.title = "round"};
  drawn.y = {.title = "accesses/s", .along = spacing::logarithmic};
  return drawn;
}

line points_of(const evaluation::json& rounds, const char* name) {
  line points{name, {}};
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    points.points.emplace_back(static_cast<double>(i), rounds[i].at("metrics").at("accesses_per_s").get<double>());
  }
  return points;
}

struct plan {
  std::uint64_t bytes = 0;
  unsigned rounds = 0;
  std::size_t accesses = 0;
};

plan make_plan(const settings& chosen) {
  plan created;
  created.bytes = chosen.working_set_bytes != 0 ? chosen.working_set_bytes : (chosen.quick ? 64 * mib : 256 * mib);
  created.bytes = std::max<std::uint64_t>(created.bytes, 64 * mib);  // a runtime has at least 16 MiB
  created.rounds = chosen.quick ? 4 : 10;
  created.accesses = created.bytes / 512;
  return created;
}

}  // namespace

result<outcome> run_hybrid(const settings& chosen) {
  const plan picked = make_plan(chosen);
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 3);
  report figures("hybrid");
  figures.set("runs", runs);
  figures.set("working_set_bytes", static_cast<double>(picked.bytes));
  figures.set("local_bytes", static_cast<double>(picked.bytes / 4));
  figures.set("rounds_per_phase", picked.rounds);
  std::vector<chart> charts;
  for (const program& one : programs) charts.push_back(draw(one));
  for (unsigned run = 1; run <= runs; ++run) {
    for (std::size_t index = 0; index < programs.size(); ++index) {
      const program& one = programs[index];
      charts[index].lines.clear();
      for (const configuration& how : configurations) {
        if (std::string(how.name).find(chosen.only) == std::string::npos) continue;
        fmt::print(stderr, "hybrid: run {} of {}: {}, {}\n", run, runs, one.name, how.name);
        const auto rounds = run_in_child({{"benchmark", "hybrid"},
                                          {"program", one.name},
                                          {"page_path_share", how.page_path_share},
                                          {"phases", one.phases},
                                          {"rounds", picked.rounds},
                                          {"accesses", picked.accesses},
                                          {"bytes", picked.bytes},
                                          {"local_bytes", picked.bytes / 4}});
        if (stop_requested()) return error{"stopped by a signal", EINTR};
        if (!rounds) {
          figures.skip(how.name, fmt::format("{}: {}", one.name, rounds.error().message));
          continue;
        }
        record(rounds.value(), one, picked.rounds, how.name, figures);
        charts[index].lines.push_back(points_of(rounds.value(), how.name));
      }
    }
  }
  record_aims(figures);
  figures.note("of each phase the first half of the rounds warms up; the whole program counts from its start");
  figures.note(fmt::format("64 B objects on {}, a quarter of them local, 16 fibers", network_uri));
  return outcome{std::move(figures),
                 {{{"accesses_per_s", "k acc/s", 1000, 1},
                   {"cpu_ns_per_access", "CPU us", 1000, 2},
                   {"object_fetches_per_access", "objects", 1, 3},
                   {"fetched_pages_per_access", "pages in", 1, 3},
                   {"evicted_pages_per_access", "pages out", 1, 3},
                   {"fetched_bytes_per_access", "bytes in", 1, 0}},
                  "accesses_per_s",
                  adaptive_name},
                 std::move(charts)};
}

}  // namespace far::bench
