// `farheap-bench run`: whole programs, unchanged, in a part of the memory that they want: under `farheap run` in each
// fault mode and over each far tier of this machine, and under Linux swap. All have the same memory for the whole
// process.
#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/units.h"
#include "benchmark.h"
#include "child.h"
#include "peer_setup.h"
#include "report_charts.h"
#include "scratch_folder.h"
#include "unchanged_programs.h"

namespace far::bench {

namespace {

constexpr const char* native_name = "native";
constexpr const char* auto_name = "farheap, auto, memory:";
constexpr const char* inline_name = "farheap, inline, memory:";
constexpr const char* thread_name = "farheap, thread, memory:";
constexpr const char* zmem_name = "farheap, auto, zmem:";
constexpr const char* file_name = "farheap, auto, file:";
constexpr const char* loop_name = "swap, loop in RAM";
constexpr const char* zram_name = "swap, zram";
constexpr const char* disk_name = "swap, disk";

struct configuration {
  const char* name;
  const char* far_uri = nullptr;  // of Farheap; none: a peer
  const char* mode = "auto";
  peer kind = peer::none;
};

// `file:` is first: its process holds nothing but local memory, and the peers get as much.
constexpr std::array configurations = {
    configuration{.name = file_name, .far_uri = "file:"},
    configuration{.name = auto_name, .far_uri = "memory:"},
    configuration{.name = inline_name, .far_uri = "memory:", .mode = "inline"},
    configuration{.name = thread_name, .far_uri = "memory:", .mode = "thread"},
    configuration{.name = zmem_name, .far_uri = "zmem:"},
    configuration{.name = loop_name, .kind = peer::loop_swap},
    configuration{.name = zram_name, .kind = peer::zram_swap},
    configuration{.name = disk_name, .kind = peer::disk_swap},
};

// Everything that is known of a program before it is measured in less memory.
struct measured_program {
  unchanged_program run;
  double native_peak_bytes = 0;
  std::string checksum = {};
  std::map<unsigned, double> whole_bytes = {};  // by percent: the memory of its process under Farheap over `file:`
};

std::string workload_name(const std::string& program, unsigned percent) {
  return fmt::format("{}, {}%", program, percent);
}

void add_figures(report& figures, const row_key& key, const unchanged_outcome& run) {
  figures.add(key, "elapsed_ns", run.seconds * 1e9);
  figures.add(key, "cpu_ns", run.cpu_ns);
  figures.add(key, "peak_bytes", run.peak_bytes);
  const std::pair<const char*, double> reported[] = {{"operations_per_s", run.operations_per_s},
                                                     {"p50_ns", run.p50_ns},
                                                     {"p99_ns", run.p99_ns},
                                                     {"read_ns", run.read_ns},
                                                     {"misses", run.misses},
                                                     {"fetched_pages", run.fetched_pages}};
  for (const auto& [name, value] : reported) {
    if (value > 0) figures.add(key, name, value);
  }
}

std::uint64_t local_share(const measured_program& program, unsigned percent) {
  return std::max(static_cast<std::uint64_t>(program.native_peak_bytes) * percent / 100, 16 * mib);
}

result<unchanged_outcome> run_far(const configuration& how, const measured_program& program, unsigned percent,
                                  const std::string& folder) {
  const std::string stats_file = folder + "/stats.json";
  return run_unchanged_program(program.run,
                               {product("farheap"), "run", "--local", std::to_string(local_share(program, percent)),
                                "--far", how.far_uri, "--fault-mode", how.mode, "--stats-json", stats_file, "--"},
                               stats_file);
}

result<unchanged_outcome> run_in_swap(const configuration& how, const measured_program& program, unsigned percent) {
  const auto whole = program.whole_bytes.find(percent);
  if (whole == program.whole_bytes.end()) {
    return error{"its memory is that of the run under Farheap over file:, which failed", ECHILD};
  }
  return run_in_peer(
      how.kind, 3, static_cast<std::uint64_t>(program.native_peak_bytes), static_cast<std::uint64_t>(whole->second), 0,
      [&](const std::vector<std::string>& launcher) { return run_unchanged_program(program.run, launcher, {}); });
}

result<void> measure(const configuration& how, measured_program& program, unsigned percent, const std::string& folder,
                     report& figures) {
  const auto ran = how.far_uri != nullptr ? run_far(how, program, percent, folder) : run_in_swap(how, program, percent);
  if (!ran) return ran.error();
  if (ran.value().checksum != program.checksum) return error{"its result is not that of the native run", EILSEQ};
  if (how.name == std::string_view(file_name)) {
    double& whole = program.whole_bytes[percent];
    whole = std::max(whole, ran.value().peak_bytes);
  }
  add_figures(figures, {workload_name(program.run.name, percent), how.name, 1}, ran.value());
  return {};
}

result<void> measure_native(measured_program& program, const std::vector<unsigned>& percents, report& figures) {
  // The first program on a virtual machine that fills so much memory gets it from the machine below, page by page,
  // which takes about as long as its work. That would be the native run, with which all others are compared.
  if (program.checksum.empty()) {
    const auto warmed = run_unchanged_program(program.run, {}, {});
    if (!warmed) return warmed.error();
  }
  const auto ran = run_unchanged_program(program.run, {}, {});
  if (!ran) return ran.error();
  if (!program.checksum.empty() && program.checksum != ran.value().checksum) {
    return error{"two native runs have different results", EILSEQ};
  }
  program.checksum = ran.value().checksum;
  program.native_peak_bytes = std::max(program.native_peak_bytes, ran.value().peak_bytes);
  for (const unsigned percent : percents) {
    add_figures(figures, {workload_name(program.run.name, percent), native_name, 1}, ran.value());
  }
  return {};
}

void run_once(const settings& chosen, const std::vector<unsigned>& percents, std::vector<measured_program>& programs,
              const std::string& folder, report& figures) {
  for (measured_program& program : programs) {
    if (stop_requested()) return;
    fmt::print(stderr, "run: {}, {}\n", program.run.name, native_name);
    if (const result<void> done = measure_native(program, percents, figures); !done) {
      figures.skip(native_name, fmt::format("{}: {}", program.run.name, done.error().message));
      continue;
    }
    for (const unsigned percent : percents) {
      for (const configuration& how : configurations) {
        const std::string name = how.name;
        if (stop_requested()) return;
        // Where everything fits, only the cost of the default is of interest. The peers need the run over file:, also
        // when it is not asked for.
        const bool needless = percent >= 100 && name != auto_name;
        const bool gives_the_size = name == file_name && std::string_view("swap").find(chosen.only) == 0;
        if (needless || (name.find(chosen.only) == std::string::npos && !gives_the_size)) continue;
        fmt::print(stderr, "run: {}, {}\n", workload_name(program.run.name, percent), name);
        const result<void> done = measure(how, program, percent, folder, figures);
        if (!done) {
          figures.skip(name, fmt::format("{}: {}", workload_name(program.run.name, percent), done.error().message));
        }
      }
    }
  }
}

// ---- aims ----

// Elapsed time of a configuration over that of another; 0 where one of them was not measured.
double ratio(const report& figures, const std::string& workload, const char* numerator, const char* to,
             const char* metric = "elapsed_ns") {
  const double above = figures.median({workload, numerator, 1}, metric);
  const double below = figures.median({workload, to, 1}, metric);
  return above > 0 && below > 0 ? above / below : 0;
}

void aim_at_most(report& figures, const std::string& subject, double value, const std::string& unit, double limit) {
  if (value > 0) figures.aim(subject, value, unit, limit, false);
}

// Of one program with one share of its memory. Returns the time of the better swap over that of Farheap; 0: unknown.
double aim_of_workload(const std::string& workload, report& figures) {
  const double to_inline = ratio(figures, workload, auto_name, inline_name);
  const double to_thread = ratio(figures, workload, auto_name, thread_name);
  aim_at_most(figures, workload + ": auto over the better mode", std::max(to_inline, to_thread), "x", 1.15);
  const double to_loop = ratio(figures, workload, auto_name, loop_name);
  const double to_zram = ratio(figures, workload, auto_name, zram_name);
  const double to_swap = std::max(to_loop, to_zram);
  aim_at_most(figures, workload + ": auto over the better swap", to_swap, "x", 1);
  aim_at_most(figures, workload + ": zmem: over zram", ratio(figures, workload, zmem_name, zram_name), "x", 1);
  aim_at_most(figures, workload + ": file: over swap on the same disk", ratio(figures, workload, file_name, disk_name),
              "x", 0.5);
  return to_swap > 0 ? 1 / to_swap : 0;
}

void aim_of_programs(const std::vector<unsigned>& percents, const std::vector<measured_program>& programs,
                     report& figures) {
  unsigned compared = 0;
  unsigned twice_as_fast = 0;
  for (const measured_program& program : programs) {
    for (const unsigned percent : percents) {
      const std::string workload = workload_name(program.run.name, percent);
      if (percent >= 100) {
        aim_at_most(figures, workload + ": CPU time over native",
                    ratio(figures, workload, auto_name, native_name, "cpu_ns"), "x", 1.02);
        continue;
      }
      const double faster = aim_of_workload(workload, figures);
      compared += faster > 0;
      twice_as_fast += faster >= 2;
    }
  }
  if (compared > 0) {
    figures.aim("programs and shares with at most half the time of the better swap", 1.0 * twice_as_fast / compared,
                "of all", 0.75, true);
  }
  const std::string redis = workload_name("redis", 25);
  if (const double rate = figures.median({redis, auto_name, 1}, "operations_per_s"); rate > 0) {
    figures.aim("redis, 25%: GET, pipelined 16", rate / 1e3, "thousand/s", 150, true);
  }
  aim_at_most(figures, "redis, 25%: p99 over zram's", ratio(figures, redis, auto_name, zram_name, "p99_ns"), "x", 1);
  const auto read_us = [&](const char* program, const char* how) {
    return figures.median({workload_name(program, 25), how, 1}, "read_ns") / 1e3;
  };
  aim_at_most(figures, "zipf reads, 25%", read_us("zipf reads", auto_name), "us", 1.2);
  aim_at_most(figures, "random reads, 25%, inline", read_us("random reads", inline_name), "us", 4);
  aim_at_most(figures, "random reads, 25%, thread", read_us("random reads", thread_name), "us", 8);
}

// Slowdown over the share of memory: one chart for each program.
std::vector<chart> draw(const std::vector<unsigned>& percents, const std::vector<measured_program>& programs,
                        const report& figures) {
  std::vector<chart> drawn;
  for (const measured_program& program : programs) {
    std::vector<curve_point> points;
    for (const unsigned percent : percents) {
      points.push_back({static_cast<double>(percent), workload_name(program.run.name, percent)});
    }
    chart& added = drawn.emplace_back();
    added.file = "run-" + program.run.name;
    std::ranges::replace_if(added.file, [](char c) { return c == ' ' || c == ','; }, '-');
    added.title = program.run.name;
    added.x = {"local memory, % of the native peak"};
    added.y = {"time, s", spacing::logarithmic};
    added.lines = curves_of(figures, {"elapsed_ns", "time, s", 1e9}, points);
  }
  return drawn;
}

}  // namespace

result<outcome> run_unchanged(const settings& chosen) {
  if (const result<void> ready = prepare_unchanged_programs(); !ready) return ready.error();
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 3);
  const std::vector<unsigned> percents = shares_of(chosen, {100, 75, 50, 25, 10});
  std::vector<measured_program> programs;
  for (unchanged_program& run : unchanged_programs(chosen.quick)) {
    if (run.name.find(chosen.workload) != std::string::npos) programs.push_back({.run = std::move(run)});
  }
  if (programs.empty()) return error{fmt::format("no program's name contains '{}'", chosen.workload), EINVAL};
  const scratch_folder folder;
  if (folder.path().empty()) return error{"cannot make a temporary folder; set TMPDIR to one with room", errno};
  report figures("run");
  figures.set("runs", runs);
  for (unsigned run = 1; run <= runs; ++run) {
    fmt::print(stderr, "run: run {} of {}\n", run, runs);
    run_once(chosen, percents, programs, folder.path(), figures);
    if (stop_requested()) return error{"stopped by a signal; devices, swap and cgroups are undone", EINTR};
  }
  aim_of_programs(percents, programs, figures);
  figures.note("the share is of the native peak; the far heap has it as budget, at least 16 MiB");
  figures.note(
      "peers run in a memory cgroup that holds what the whole process held under Farheap over file:, with "
      "page-cluster 3; the kernel's own CPU time is not in theirs");
  table_layout layout{{{"elapsed_ns", "time s", 1e9, 2},
                       {"cpu_ns", "CPU s", 1e9, 2},
                       {"peak_bytes", "peak MiB", static_cast<double>(mib), 0},
                       {"operations_per_s", "k op/s", 1e3, 1},
                       {"p99_ns", "p99 us", 1e3, 0},
                       {"read_ns", "read us", 1e3, 2},
                       {"misses", "k misses", 1e3, 0},
                       {"fetched_pages", "k pages in", 1e3, 0}},
                      "elapsed_ns",
                      native_name};
  std::vector<chart> charts = draw(percents, programs, figures);
  return outcome{std::move(figures), std::move(layout), std::move(charts)};
}

}  // namespace far::bench
