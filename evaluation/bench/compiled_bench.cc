// `farheap-bench compiled`: plain programs, compiled by clang -O3 and by the compile door (TrackFM, section 4):
// natively, under `farheap run` in each fault mode with all and with a part of the memory that they want, and under
// Linux swap. Also what the door costs: instructions, size of the code, time of compilation.
#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/units.h"
#include "benchmark.h"
#include "child.h"
#include "clocks.h"
#include "compiled_programs.h"
#include "heap_bench.h"
#include "peer_setup.h"
#include "report_charts.h"
#include "scratch_folder.h"

namespace far::bench {

namespace {

constexpr const char* local_name = "clang -O3, all local";
constexpr const char* bare_name = "compiled, no runtime";
constexpr const char* swap_prefix = "clang -O3, swap";
constexpr const char* clang_prefix = "clang -O3, farheap run";
constexpr const char* door_prefix = "compiled, farheap run";

struct configuration {
  const char* name;
  compiler by;
  const char* mode;  // of farheap run; none: without the runtime
  peer kind = peer::none;
  int cluster = 3;  // page-cluster, for swap
};

constexpr std::array configurations = {
    configuration{bare_name, compiler::door, nullptr},
    configuration{"compiled, farheap run, inline", compiler::door, "inline"},
    configuration{"compiled, farheap run, thread", compiler::door, "thread"},
    configuration{"clang -O3, farheap run, inline", compiler::clang, "inline"},
    configuration{"clang -O3, farheap run, thread", compiler::clang, "thread"},
    configuration{"clang -O3, swap, loop in RAM, page-cluster 3", compiler::clang, nullptr, peer::loop_swap},
    configuration{"clang -O3, swap, loop in RAM, page-cluster 0", compiler::clang, nullptr, peer::loop_swap, 0},
    configuration{"clang -O3, swap, zram, page-cluster 3", compiler::clang, nullptr, peer::zram_swap},
    configuration{"clang -O3, swap, zram, page-cluster 0", compiler::clang, nullptr, peer::zram_swap, 0},
};

// What swaps longer than so many times everything local is given up: it would hold up all others and misses every aim.
constexpr double slowest_times = 60;
constexpr std::uint64_t least_deadline_ns = 60'000'000'000;

// A program, and what is known of it before it is measured in less memory.
struct measured {
  compiled_program run;
  std::array<std::string, 2> paths = {};  // by compiler
  std::string results = {};
  double peak_bytes = 0;  // with everything local
  double whole_ns = 0;    // likewise, from its start to its end

  [[nodiscard]] const std::string& path(compiler by) const { return paths[static_cast<std::size_t>(by)]; }
};

std::string row_of(const measured& program, unsigned percent) {
  return fmt::format("{}, {}%", program.run.name, percent);
}

// Of the one row that tells what each compiler costs.
row_key key_of(const measured& program, compiler by) {
  return {row_of(program, 100), by == compiler::door ? bare_name : local_name, 1};
}

void add_figures(report& figures, const row_key& key, const compiled_outcome& run) {
  figures.add(key, "elapsed_ns", run.seconds * 1e9);
  figures.add(key, "cpu_ns", run.cpu_ns);
  figures.add(key, "peak_bytes", run.peak_bytes);
  if (run.misses < 0) return;
  figures.add(key, "misses", run.misses);
  figures.add(key, "fetched_pages", run.fetched_pages);
}

// ---- what a compiler costs ----

result<void> build_one(measured& program, compiler by, const std::string& folder, report& figures) {
  const auto built = build_program(program.run, by, folder);
  if (!built) return built.error();
  program.paths[static_cast<std::size_t>(by)] = built.value().path;
  figures.add(key_of(program, by), "compile_ns", built.value().compile_ns);
  figures.add(key_of(program, by), "code_bytes", built.value().code_bytes);
  return {};
}

// By each compiler in turn, `runs` times. Returns how much code the door links to each.
result<double> build_all(std::vector<measured>& programs, unsigned runs, const std::string& folder, report& figures) {
  for (unsigned run = 0; run < runs; ++run) {
    for (measured& program : programs) {
      fmt::print(stderr, "compiled: {}, compiling\n", program.run.name);
      for (const compiler by : {compiler::clang, compiler::door}) {
        if (stop_requested()) return error{"stopped by a signal", EINTR};
        if (const result<void> done = build_one(program, by, folder, figures); !done) return done.error();
      }
    }
  }
  return support_code_bytes(folder);
}

void count_instructions(const std::vector<measured>& programs, const std::string& folder, report& figures) {
  for (const measured& program : programs) {
    if (program.run.few.empty() || stop_requested()) continue;
    fmt::print(stderr, "compiled: {}, instructions\n", program.run.name);
    for (const compiler by : {compiler::clang, compiler::door}) {
      const auto counted = count_program_instructions(program.run, program.path(by), folder);
      if (counted) {
        figures.add(key_of(program, by), "instructions", counted.value());
      } else {
        figures.skip("instructions", fmt::format("{}: {}", program.run.name, counted.error().message));
      }
    }
  }
}

// ---- runs ----

result<compiled_outcome> run_in_swap(const configuration& how, const measured& program, std::uint64_t local_bytes) {
  const auto deadline_ns = std::max(least_deadline_ns, static_cast<std::uint64_t>(slowest_times * program.whole_ns));
  return run_in_peer(how.kind, how.cluster, static_cast<std::uint64_t>(program.peak_bytes), local_bytes,
                     peer_allowance_bytes, [&](const std::vector<std::string>& launcher) {
                       return run_program(program.run, program.path(how.by), launcher, "", deadline_ns);
                     });
}

result<compiled_outcome> run_with(const configuration& how, const measured& program, unsigned percent,
                                  const std::string& folder) {
  // Where all is local, the runtime has as much as it wants.
  const auto all_bytes = static_cast<std::uint64_t>(program.peak_bytes);
  const std::uint64_t local_bytes =
      percent >= 100 ? 2 * all_bytes + 64 * mib : std::max(all_bytes * percent / 100, 16 * mib);
  if (how.kind != peer::none) return run_in_swap(how, program, local_bytes);
  if (how.mode == nullptr) return run_program(program.run, program.path(how.by), {}, {});
  const std::string stats = program.run.load.empty() ? folder + "/stats.json" : "";
  std::vector<std::string> launcher = {
      product("farheap"), "run",          "--local", std::to_string(local_bytes), "--far",
      network_uri,        "--fault-mode", how.mode};
  if (!stats.empty()) launcher.insert(launcher.end(), {"--stats-json", stats});
  launcher.emplace_back("--");
  return run_program(program.run, program.path(how.by), launcher, stats);
}

result<void> measure_local(measured& program, const std::vector<unsigned>& percents, report& figures) {
  const std::uint64_t start_ns = monotonic_ns();
  const auto ran = run_program(program.run, program.path(compiler::clang), {}, {});
  if (!ran) return ran.error();
  program.whole_ns = std::max(program.whole_ns, static_cast<double>(monotonic_ns() - start_ns));
  if (!program.results.empty() && program.results != ran.value().results) {
    return error{"two runs have different results", EILSEQ};
  }
  program.results = ran.value().results;
  program.peak_bytes = std::max(program.peak_bytes, ran.value().peak_bytes);
  for (const unsigned percent : percents) add_figures(figures, {row_of(program, percent), local_name, 1}, ran.value());
  return {};
}

bool is_needless(const configuration& how, unsigned percent) {
  // Where everything fits there is nothing to swap; without the runtime all is local.
  return percent >= 100 ? how.kind != peer::none : how.mode == nullptr && how.kind == peer::none;
}

void run_once(const settings& chosen, const std::vector<unsigned>& percents, std::vector<measured>& programs,
              const std::string& folder, report& figures) {
  for (measured& program : programs) {
    if (stop_requested()) return;
    fmt::print(stderr, "compiled: {}, {}\n", program.run.name, local_name);
    if (const result<void> done = measure_local(program, percents, figures); !done) {
      figures.skip(local_name, fmt::format("{}: {}", program.run.name, done.error().message));
      continue;
    }
    for (const unsigned percent : percents) {
      for (const configuration& how : configurations) {
        if (is_needless(how, percent)) continue;
        if (stop_requested() || std::string(how.name).find(chosen.only) == std::string::npos) continue;
        fmt::print(stderr, "compiled: {}, {}\n", row_of(program, percent), how.name);
        auto ran = run_with(how, program, percent, folder);
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
  const char* program;
  double local_over_clang;  // everything local, at most
  double over_swap;         // at 25%, speed, at least; 0: none
  double over_run;          // likewise
  double over_local;        // at 25%, time, at most; 0: none
};

constexpr std::array aims = {
    aimed{"stream", 1.05, 4, 1.3, 0},     aimed{"kmeans", 1.05, 4, 1.3, 0},   aimed{"hashmap", 1.10, 3, 0, 0},
    aimed{"hashmap-objects", 0, 3, 0, 0}, aimed{"gradient", 1.10, 0, 0, 1.3}, aimed{"fourier", 1.10, 0, 0, 2},
    aimed{"integers", 1.10, 0, 0, 0},     aimed{"multigrid", 1.05, 0, 0, 0},  aimed{"compressor", 1.10, 0, 0, 0},
    aimed{"taxi", 1.10, 0, 0, 0},         aimed{"cached", 1.10, 0, 0, 0},
};

// The least time among the configurations of a row whose name begins so; 0 when there is none.
double best_of(const report& figures, const std::string& row, const std::string& prefix) {
  double best = 0;
  for (const row_key& key : figures.keys()) {
    if (key.workload != row || !key.configuration.starts_with(prefix)) continue;
    const double taken = figures.median(key, "elapsed_ns");
    best = best == 0 ? taken : std::min(best, taken);
  }
  return best;
}

void aim_at(report& figures, const std::string& subject, double above, double below, double limit, bool at_least) {
  if (above > 0 && below > 0 && limit > 0) figures.aim(subject, above / below, "x", limit, at_least);
}

void compare_program(const measured& program, const aimed& one, report& figures) {
  const std::string& name = program.run.name;
  const std::string all = row_of(program, 100);
  const std::string part = row_of(program, 25);
  const auto metric = [&](compiler by, const char* what) { return figures.median(key_of(program, by), what); };
  aim_at(figures, name + ", all local: instructions over clang -O3", metric(compiler::door, "instructions"),
         metric(compiler::clang, "instructions"), one.local_over_clang, false);
  aim_at(figures, name + ", all local: time over clang -O3", best_of(figures, all, bare_name),
         best_of(figures, all, local_name), one.local_over_clang, false);
  aim_at(figures, name + ", all local, farheap run: time over clang -O3", best_of(figures, all, door_prefix),
         best_of(figures, all, local_name), one.local_over_clang, false);
  const double mine = best_of(figures, part, door_prefix);
  aim_at(figures, part + ": speed over swap", best_of(figures, part, swap_prefix), mine, one.over_swap, true);
  aim_at(figures, part + ": speed over clang -O3 under farheap run", best_of(figures, part, clang_prefix), mine,
         one.over_run, true);
  aim_at(figures, part + ": time over all local", mine, best_of(figures, part, local_name), one.over_local, false);
}

void compare(const std::vector<measured>& programs, double support_bytes, report& figures) {
  for (const measured& program : programs) {
    const auto one = std::ranges::find(aims, program.run.name, &aimed::program);
    if (one != aims.end()) compare_program(program, *one, figures);
  }
  const auto sum = [&](compiler by, const char* metric) {
    double total = 0;
    for (const measured& program : programs) {
      if (program.run.door_options.empty()) total += figures.median(key_of(program, by), metric);
    }
    return total;
  };
  const auto counted = std::ranges::count_if(programs, [](const auto& one) { return one.run.door_options.empty(); });
  const double supports = static_cast<double>(counted) * support_bytes;
  aim_at(figures, "size of the code of all programs, without the support, over clang -O3",
         sum(compiler::door, "code_bytes") - supports, sum(compiler::clang, "code_bytes"), 1.3, false);
  aim_at(figures, "CPU time of compiling all programs over clang -O3", sum(compiler::door, "compile_ns"),
         sum(compiler::clang, "compile_ns"), 2, false);
}

std::vector<chart> draw(const std::vector<unsigned>& percents, const std::vector<measured>& programs,
                        const report& figures) {
  std::vector<chart> drawn;
  for (const measured& program : programs) {
    std::vector<curve_point> points;
    for (const unsigned percent : percents) points.push_back({static_cast<double>(percent), row_of(program, percent)});
    chart& added = drawn.emplace_back();
    added.file = "compiled-" + program.run.name;
    added.title = program.run.name;
    added.x = {"local memory, % of what it wants"};
    added.y = {"time, s", spacing::logarithmic};
    added.lines = curves_of(figures, {"elapsed_ns", "time, s", 1e9}, points);
  }
  return drawn;
}

table_layout layout() {
  return {{{"elapsed_ns", "time s", 1e9, 2},
           {"cpu_ns", "CPU s", 1e9, 2},
           {"peak_bytes", "peak MiB", static_cast<double>(mib), 0},
           {"misses", "k misses", 1e3, 1},
           {"fetched_pages", "k pages", 1e3, 1},
           {"instructions", "M instr.", 1e6, 1},
           {"code_bytes", "code KiB", 1024, 1},
           {"compile_ns", "comp. s", 1e9, 2}},
          "elapsed_ns",
          local_name};
}

}  // namespace

result<outcome> run_compiled(const settings& chosen) {
  if (const result<void> ready = find_compilers(); !ready) return ready.error();
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 3);
  const std::vector<unsigned> percents = shares_of(chosen, {100, 75, 50, 25});
  const std::uint64_t bytes =
      chosen.working_set_bytes != 0 ? chosen.working_set_bytes : (chosen.quick ? 64 * mib : 128 * mib);
  if (bytes < 4 * mib) return error{"the working set is below 4 MiB", EINVAL};
  std::vector<measured> programs;
  for (compiled_program& run : compiled_programs(chosen.quick, bytes)) {
    if (run.name.find(chosen.workload) != std::string::npos) programs.push_back({.run = std::move(run)});
  }
  if (programs.empty()) return error{fmt::format("no program's name contains '{}'", chosen.workload), EINVAL};
  const scratch_folder folder;
  if (folder.path().empty()) return error{"cannot make a temporary folder; set TMPDIR to one with room", errno};
  report figures("compiled");
  figures.set("runs", runs);
  figures.set("working_set_bytes", static_cast<double>(bytes));
  const auto support_bytes = build_all(programs, runs, folder.path(), figures);
  if (!support_bytes) return support_bytes.error();
  count_instructions(programs, folder.path(), figures);
  for (unsigned run = 1; run <= runs; ++run) {
    fmt::print(stderr, "compiled: run {} of {}\n", run, runs);
    run_once(chosen, percents, programs, folder.path(), figures);
    if (stop_requested()) return error{"stopped by a signal; devices, swap and cgroups are undone", EINTR};
  }
  compare(programs, support_bytes.value(), figures);
  figures.note(
      fmt::format("the far tier is {}; the share is of the most that the process compiled by clang holds with "
                  "everything local, at least 16 MiB; at 100% the runtime has more than that",
                  network_uri));
  figures.note(
      fmt::format("swap: in a memory cgroup of the same size plus {}; the kernel's own CPU time is not in it; "
                  "what takes more than {} times as long as with everything local is given up",
                  format_size(peer_allowance_bytes), slowest_times));
  figures.note("instructions are those of a run with little data and without the runtime; compilation is CPU time");
  figures.note(fmt::format("code is that of whole programs; {:.1f} KiB of each of the door's is the support",
                           support_bytes.value() / 1024));
  std::vector<chart> charts = draw(percents, programs, figures);
  return outcome{std::move(figures), layout(), std::move(charts)};
}

}  // namespace far::bench
