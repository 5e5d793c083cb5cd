// `farheap-bench eden`: the worth of hints (Eden, section 5, figures 6, 7, 8 and 11): programs of apps/ with hints and
// without, beside swap; single pages, fetched with hints and without; and pages taken out in batches.
#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "base/units.h"
#include "benchmark.h"
#include "child.h"
#include "common/json.h"
#include "heap_bench.h"
#include "peer_setup.h"
#include "report_charts.h"

namespace far::bench {

namespace {

constexpr const char* far_uri = "memory:?latency=5us&gbps=100";
constexpr std::uint64_t app_deadline_ns = 300'000'000'000;

constexpr const char* local_name = "local memory, all fits";
constexpr const char* unhinted_thread = "farheap, unhinted, thread";
constexpr const char* unhinted_inline = "farheap, unhinted, inline";
constexpr const char* basic_name = "farheap, basic hints";
constexpr const char* hinted_name = "farheap, hinted";
constexpr const char* swap_prefix = "swap, ";

// ---- programs ----

struct program {
  std::string name;
  std::vector<std::string> arguments;
  std::uint64_t bytes;  // that it works on
};

std::vector<program> programs(bool quick) {
  const std::uint64_t part = quick ? 4 : 1;
  const std::uint64_t elements = 16 * mib / part;
  const std::uint64_t rows = 3 * mib / part;
  const std::uint64_t keys = 2'000'000 / part;
  const std::uint64_t pages = 24'576 / part;
  return {{"psort", {"--elements", std::to_string(elements)}, 16 * elements},
          {"taxi", {"--rows", std::to_string(rows)}, 80 * rows},
          {"web",
           {"--keys", std::to_string(keys), "--elements", std::to_string(pages), "--closed-loop",
            std::to_string(40'000 / part)},
           26 * keys + 8 * kib * pages}};
}

struct configuration {
  const char* name;
  const char* build = "-unhinted";  // of the program, see cmake/apps.cmake
  bool farheap = false;
  const char* mode = "";
  peer kind = peer::none;
};

constexpr std::array configurations = {
    configuration{.name = local_name},
    configuration{.name = unhinted_thread, .farheap = true, .mode = "thread"},
    configuration{.name = unhinted_inline, .farheap = true, .mode = "inline"},
    configuration{.name = basic_name, .build = "-basic", .farheap = true, .mode = "inline"},
    configuration{.name = hinted_name, .build = "", .farheap = true, .mode = "inline"},
    configuration{.name = "swap, loop in RAM", .kind = peer::loop_swap},
    configuration{.name = "swap, zram", .kind = peer::zram_swap},
};

std::vector<std::string> command_for(const program& run, const configuration& how, std::uint64_t local_bytes,
                                     const surroundings& around) {
  std::vector<std::string> command;
  if (how.farheap) {
    command = {product("farheap"),
               "run",
               "--local",
               std::to_string(local_bytes),
               "--far",
               far_uri,
               "--fault-mode",
               how.mode,
               "--policy",
               run.name == "web" ? "priority" : "second-chance",
               "--"};
  } else if (around.cgroup != nullptr) {
    command = {"/bin/sh", "-c", "echo $$ > \"$0\" && exec \"$@\"", around.cgroup->members_file()};
  }
  command.push_back(product("apps/" + run.name + how.build));
  command.insert(command.end(), run.arguments.begin(), run.arguments.end());
  command.emplace_back("--json");
  return command;
}

std::string workload_name(const program& run, unsigned percent) {
  return percent == 0 ? fmt::format("{}, everything local", run.name) : fmt::format("{}, {}% local", run.name, percent);
}

// `percent` of its memory is local; 0: all of it, and more.
result<void> run_program(const program& run, const configuration& how, unsigned percent, report& figures) {
  const std::uint64_t local_bytes = percent == 0 ? 4 * gib : std::max(run.bytes * percent / 100, 16 * mib);
  const auto around = set_up_peer(how.kind, 3, run.bytes, local_bytes);
  if (!around) return around.error();
  const auto ended = run_child(command_for(run, how, local_bytes, around.value()), app_deadline_ns);
  if (!ended) return ended.error();
  const evaluation::json said = evaluation::json::parse(ended.value().output);
  if (said.is_null()) return error{"it printed no figures", EPROTO};
  const row_key key{workload_name(run, percent), how.name, 1};
  const double seconds = said.at("seconds");
  figures.add(key, "runs_per_s", 1 / seconds);
  figures.add(key, "elapsed_ns", seconds * 1e9);
  figures.add(key, "cpu_ns", static_cast<double>(ended.value().cpu_ns));
  return {};
}

void run_programs(const settings& chosen, const std::vector<unsigned>& percents, report& figures) {
  for (const program& run : programs(chosen.quick)) {
    for (const unsigned percent : percents) {
      for (const configuration& how : configurations) {
        const bool needless = percent == 0 ? !how.farheap : false;
        if (stop_requested() || needless || std::string(how.name).find(chosen.only) == std::string::npos) continue;
        fmt::print(stderr, "eden: {}, {}\n", workload_name(run, percent), how.name);
        const result<void> done = run_program(run, how, percent, figures);
        if (!done) figures.skip(how.name, fmt::format("{}: {}", workload_name(run, percent), done.error().message));
      }
    }
  }
}

double best(const report& figures, const std::string& workload, const std::string& prefix) {
  double found = 0;
  for (const row_key& key : figures.keys()) {
    if (key.workload != workload || !key.configuration.starts_with(prefix)) continue;
    found = std::max(found, figures.median(key, "runs_per_s"));
  }
  return found;
}

void aim_of_programs(const settings& chosen, const std::vector<unsigned>& percents, report& figures) {
  for (const program& run : programs(chosen.quick)) {
    for (const unsigned percent : percents) {
      const std::string workload = workload_name(run, percent);
      const double hinted = figures.median({workload, hinted_name, 1}, "runs_per_s");
      const double unhinted = best(figures, workload, "farheap, unhinted");
      const double swap = best(figures, workload, swap_prefix);
      if (hinted <= 0) continue;
      if (percent == 0) {
        const double cpu = figures.median({workload, hinted_name, 1}, "cpu_ns");
        const double without = figures.median({workload, unhinted_inline, 1}, "cpu_ns");
        if (without > 0) figures.aim(workload + ": CPU time, hinted over unhinted", cpu / without, "x", 1.05, false);
        continue;
      }
      if (unhinted > 0) figures.aim(workload + ": hinted over the better unhinted", hinted / unhinted, "x", 2, true);
      if (swap > 0) figures.aim(workload + ": hinted over the better swap", hinted / swap, "x", 3, true);
    }
  }
}

// ---- pages ----

struct page_workload {
  std::string name;
  bool evicts = false;
  bool writes = false;
  bool scattered = true;
  bool hinted = true;
  int read_ahead = 0;
  unsigned fibers = 32;
  double aimed_pages_per_s = 0;
};

constexpr std::array<unsigned, 7> powers_of_two = {1, 2, 4, 8, 16, 32, 64};
constexpr const char* random_pages = "random pages";

std::string read_ahead_name(unsigned pages) {
  return fmt::format("pages in order, read-ahead {}", pages);
}

const char* worker_name(const page_workload& one) {
  return one.hinted ? "one worker, hinted" : "one worker, unhinted";
}

std::vector<page_workload> page_workloads() {
  std::vector<page_workload> all;
  for (const bool hinted : {false, true}) {
    all.push_back({.name = fmt::format("{}, no eviction", random_pages),
                   .hinted = hinted,
                   .aimed_pages_per_s = hinted ? 600e3 : 0});
    all.push_back({.name = fmt::format("{}, evicting clean", random_pages),
                   .evicts = true,
                   .hinted = hinted,
                   .aimed_pages_per_s = hinted ? 350e3 : 0});
    all.push_back(
        {.name = fmt::format("{}, evicting dirty", random_pages), .evicts = true, .writes = true, .hinted = hinted});
  }
  for (const unsigned ahead : powers_of_two) {
    all.push_back({.name = read_ahead_name(ahead),
                   .scattered = false,
                   .read_ahead = static_cast<int>(ahead),
                   .fibers = 8,
                   .aimed_pages_per_s = ahead == 16 ? 1.5e6 : 0});
  }
  return all;
}

void run_pages(const settings& chosen, report& figures) {
  const std::uint64_t bytes = chosen.quick ? 64 * mib : 256 * mib;
  for (const page_workload& one : page_workloads()) {
    if (stop_requested() || std::string(worker_name(one)).find(chosen.only) == std::string::npos) continue;
    fmt::print(stderr, "eden: {}, {}\n", one.name, worker_name(one));
    const auto measured = run_in_child({{"benchmark", "hints"},
                                        {"far_uri", far_uri},
                                        {"bytes", bytes},
                                        {"local_bytes", one.evicts ? bytes / 4 : 2 * bytes},
                                        {"fibers", one.fibers},
                                        {"hinted", one.hinted},
                                        {"writes", one.writes},
                                        {"scattered", one.scattered},
                                        {"read_ahead", one.read_ahead},
                                        {"visits", bytes / page_bytes},
                                        {"passes", 4}});
    if (!measured) {
      figures.skip(worker_name(one), fmt::format("{}: {}", one.name, measured.error().message));
      continue;
    }
    add_samples(figures, {one.name, worker_name(one), 1}, measured.value());
  }
}

void aim_of_pages(report& figures) {
  for (const page_workload& one : page_workloads()) {
    const double rate = figures.median({one.name, worker_name(one), 1}, "fetched_pages_per_s");
    if (one.aimed_pages_per_s > 0 && rate > 0) {
      figures.aim(fmt::format("{}, {}", one.name, worker_name(one)), rate / 1e3, "thousand pages/s",
                  one.aimed_pages_per_s / 1e3, true);
    }
  }
}

// ---- batches ----

struct batch_configuration {
  const char* name;
  bool dirty;
  bool neighbours;
};

constexpr std::array batch_configurations = {
    batch_configuration{"clean, apart", false, false},
    batch_configuration{"clean, neighbours", false, true},
    batch_configuration{"dirty, apart", true, false},
    batch_configuration{"dirty, neighbours", true, true},
};

std::string batch_name(unsigned pages) {
  return fmt::format("pages out, {} a batch", pages);
}

void run_batches(const settings& chosen, report& figures) {
  fmt::print(stderr, "eden: pages out, in batches\n");
  for (const unsigned pages_a_batch : powers_of_two) {
    for (const batch_configuration& how : batch_configurations) {
      if (stop_requested() || std::string(how.name).find(chosen.only) == std::string::npos) continue;
      const auto measured = run_in_child({{"benchmark", "batches"},
                                          {"far_uri", far_uri},
                                          {"pages", chosen.quick ? 1024 : 4096},
                                          {"pages_a_batch", pages_a_batch},
                                          {"dirty", how.dirty},
                                          {"neighbours", how.neighbours},
                                          {"passes", chosen.quick ? 4 : 16}});
      if (measured) {
        add_samples(figures, {batch_name(pages_a_batch), how.name, 1}, measured.value());
      } else {
        figures.skip(how.name, fmt::format("{}: {}", batch_name(pages_a_batch), measured.error().message));
      }
    }
  }
}

// ---- charts ----

// Medians over a number: one chart for each metric.
struct curves {
  std::string name;
  std::string title;
  axis x;
  spacing along_y = spacing::linear;
  std::vector<curve_point> points;
  std::vector<column> metrics;
};

std::vector<curves> curves_over_numbers(const settings& chosen, const std::vector<unsigned>& percents) {
  const column page_cpu{"cpu_ns_per_page", "CPU us/page", 1000};
  curves read_ahead{.name = "read-ahead",
                    .title = "Pages in order",
                    .x = {"read-ahead, pages", spacing::doublings},
                    .points = {},
                    .metrics = {{"fetched_pages_per_s", "pages/s"}, page_cpu}};
  curves batches{.name = "batches",
                 .title = "Pages taken out",
                 .x = {"pages a batch", spacing::doublings},
                 .along_y = spacing::logarithmic,
                 .points = {},
                 .metrics = {{"evicted_pages_per_s", "pages/s"}, page_cpu}};
  for (const unsigned pages : powers_of_two) {
    read_ahead.points.push_back({static_cast<double>(pages), read_ahead_name(pages)});
    batches.points.push_back({static_cast<double>(pages), batch_name(pages)});
  }
  std::vector<curves> all = {std::move(batches), std::move(read_ahead)};
  for (const program& run : programs(chosen.quick)) {
    curves& of_program = all.emplace_back();
    of_program.name = run.name;
    of_program.title = run.name;
    of_program.x = {"local memory, % of what it works on; at 100 everything is local"};
    of_program.metrics = {{"elapsed_ns", "run time, s", 1e9}, {"cpu_ns", "CPU time, s", 1e9}};
    for (const unsigned percent : percents) {
      of_program.points.push_back({percent == 0 ? 100.0 : percent, workload_name(run, percent)});
    }
  }
  return all;
}

std::vector<chart> draw(const report& figures, const table_layout& layout, const std::vector<curves>& all) {
  std::vector<chart> drawn;
  for (const curves& one : all) {
    for (const column& metric : one.metrics) {
      chart& added = drawn.emplace_back();
      added.file = fmt::format("eden-{}-{}", one.name, metric.metric);
      added.title = one.title;
      added.x = one.x;
      added.y = {metric.heading, one.along_y};
      added.lines = curves_of(figures, metric, one.points);
    }
  }
  for (const column& metric : layout.columns) {
    chart bars = bars_of(figures, metric, random_pages);
    if (bars.groups.empty()) continue;
    bars.file = fmt::format("eden-random-pages-{}", metric.metric);
    drawn.push_back(std::move(bars));
  }
  return drawn;
}

}  // namespace

result<outcome> run_eden(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 3);
  const std::vector<unsigned> percents =
      chosen.quick ? std::vector<unsigned>{25, 0} : std::vector<unsigned>{10, 25, 50, 0};
  report figures("eden");
  figures.set("runs", runs);
  if (access(product("apps/psort").c_str(), X_OK) != 0) {
    return error{fmt::format("{} is not there; build it first: make build", product("apps/psort")), ENOENT};
  }
  for (unsigned run = 1; run <= runs; ++run) {
    fmt::print(stderr, "eden: run {} of {}\n", run, runs);
    run_batches(chosen, figures);
    run_pages(chosen, figures);
    run_programs(chosen, percents, figures);
    if (stop_requested()) return error{"stopped by a signal; devices, swap and cgroups are undone", EINTR};
  }
  aim_of_pages(figures);
  aim_of_programs(chosen, percents, figures);
  figures.note(fmt::format("the far tier is {}; pages: fibers of one worker, CPU time of the whole process", far_uri));
  figures.note("pages out: the engine's eviction on one thread; apart: no two pages are neighbours");
  figures.note(
      "programs: two threads; local memory is that share of what the program works on, at least 16 MiB; web "
      "under the policy priority, the others under second-chance");
  figures.note(fmt::format("peers run in a memory cgroup of the same local size plus {}, with page-cluster 3",
                           format_size(peer_allowance_bytes)));
  table_layout layout{{{"evicted_pages_per_s", "k out/s", 1000, 1},
                       {"fetched_pages_per_s", "k in/s", 1000, 1},
                       {"cpu_ns_per_page", "CPU us/page", 1000, 2},
                       {"runs_per_s", "runs/s", 1, 3},
                       {"cpu_ns", "CPU s", 1e9, 2}},
                      "runs_per_s",
                      local_name};
  std::vector<chart> charts = draw(figures, layout, curves_over_numbers(chosen, percents));
  return outcome{std::move(figures), std::move(layout), std::move(charts)};
}

}  // namespace far::bench
