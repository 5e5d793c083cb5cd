// `farheap-bench pager`: a working set of which a quarter fits in local memory, walked over in several ways: Farheap
// beside Linux swap, a mapped device, and memory that fits.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "benchmark.h"
#include "child.h"
#include "common/json.h"
#include "peer_setup.h"
#include "workload.h"

namespace far::bench {

namespace {

struct configuration {
  std::string name;
  std::string far_uri = {};  // empty: no Farheap
  std::string fault_mode = {};
  peer kind = peer::none;
  int cluster = -1;         // page-cluster, for swap
  std::string evicts = {};  // always there: "background", "misses". Measured only when --only asks for it
};

constexpr const char* local_name = "local memory, all fits";
constexpr const char* inline_name = "farheap memory: inline";

constexpr std::uint64_t child_deadline_ns = 120'000'000'000;

std::vector<configuration> all_configurations() {
  return {
      {.name = local_name},
      {.name = inline_name, .far_uri = "memory:", .fault_mode = "inline"},
      {.name = "farheap memory: thread", .far_uri = "memory:", .fault_mode = "thread"},
      {.name = "farheap memory: inline, evicts in the background",
       .far_uri = "memory:",
       .fault_mode = "inline",
       .evicts = "background"},
      {.name = "farheap memory: inline, evicts at misses",
       .far_uri = "memory:",
       .fault_mode = "inline",
       .evicts = "misses"},
      {.name = "farheap file: thread", .far_uri = "file:", .fault_mode = "thread"},
      {.name = "swap, loop in RAM, page-cluster 0", .kind = peer::loop_swap, .cluster = 0},
      {.name = "swap, loop in RAM, page-cluster 3", .kind = peer::loop_swap, .cluster = 3},
      {.name = "swap, zram, page-cluster 0", .kind = peer::zram_swap, .cluster = 0},
      {.name = "swap, zram, page-cluster 3", .kind = peer::zram_swap, .cluster = 3},
      {.name = "mmap of a loop device in RAM", .kind = peer::mapped_device},
  };
}

struct sizes {
  std::uint64_t working_set_bytes = 0;
  std::uint64_t local_bytes = 0;
  pass_size pass;
};

sizes choose_sizes(const settings& chosen) {
  sizes picked;
  picked.working_set_bytes = chosen.working_set_bytes;
  if (picked.working_set_bytes == 0) picked.working_set_bytes = chosen.quick ? 256 * mib : gib;
  picked.working_set_bytes = round_up(picked.working_set_bytes, 2 * mib);
  picked.local_bytes = picked.working_set_bytes / 4;
  const std::size_t pages = picked.working_set_bytes / page_bytes;
  // As long as the slowest peer allows within a few minutes. Each pass begins where the one before ended.
  picked.pass.sequential_accesses = std::min<std::size_t>(pages / 2, 49'152);
  picked.pass.stride_accesses = std::min<std::size_t>(pages / 4, 16'384);
  picked.pass.random_accesses = chosen.quick ? 10'000 : 20'000;
  return picked;
}

// Runs every workload of one configuration and records what it measured.
result<void> run_configuration(const configuration& one, const sizes& picked, report& figures) {
  auto created = set_up_peer(one.kind, one.cluster, picked.working_set_bytes, picked.local_bytes);
  if (!created) return created.error();
  const surroundings& around = created.value();
  const evaluation::json specification = {{"far_uri", one.far_uri},
                                          {"fault_mode", one.fault_mode},
                                          {"evicts", one.evicts},
                                          {"device", around.mapped ? around.mapped->path() : std::string()},
                                          {"cgroup_members_file", around.cgroup ? around.cgroup->members_file() : ""},
                                          {"working_set_bytes", picked.working_set_bytes},
                                          {"local_bytes", picked.local_bytes},
                                          {"sequential_accesses", picked.pass.sequential_accesses},
                                          {"stride_accesses", picked.pass.stride_accesses},
                                          {"random_accesses", picked.pass.random_accesses}};
  auto ended = run_child({own_path(), "pager-child", specification.dump()}, child_deadline_ns);
  if (!ended) return ended.error();
  const evaluation::json passes = evaluation::json::parse(ended.value().output);
  if (!passes.is_array()) return error{"its process printed no figures", EPROTO};
  for (const evaluation::json& pass : passes) {
    const row_key key{pass.at("workload"), one.name, pass.at("threads")};
    for (const auto& [metric, value] : pass.at("metrics").items()) figures.add(key, metric, value.get<double>());
  }
  return {};
}

// The best median among the configurations whose names begin with `prefix`; 0 when none was measured.
double best(const report& figures, const std::string& workload, const std::string& prefix, const std::string& metric) {
  double found = 0;
  for (const configuration& one : all_configurations()) {
    if (one.name.starts_with(prefix)) found = std::max(found, figures.median({workload, one.name, 1}, metric));
  }
  return found;
}

void record_aims(report& figures) {
  const row_key random{"random_read", inline_name, 1};
  const row_key sequential{"sequential_read", inline_name, 1};
  if (!figures.has(random)) return;
  figures.aim("inline miss, p50, random_read", figures.median(random, "miss_p50_ns") / 1000, "us", 4, false);
  const double swap_random = best(figures, "random_read", "swap, loop", "accesses_per_s");
  if (swap_random > 0) {
    figures.aim("random_read, farheap inline over swap on a loop device",
                figures.median(random, "accesses_per_s") / swap_random, "x", 2, true);
  }
  const double swap_sequential = best(figures, "sequential_read", "swap, ", "bytes_per_s");
  const double own_sequential = figures.median(sequential, "bytes_per_s");
  if (swap_sequential > 0) {
    figures.aim("sequential_read, farheap inline over the better swap", own_sequential / swap_sequential, "x", 3, true);
  }
  figures.aim("sequential_read, farheap inline", own_sequential / 1e9, "GB/s", 1.5, true);
}

void record_notes(report& figures) {
  figures.note("a quarter of the working set is local; every page is checked at every access");
  figures.note(
      fmt::format("peers run in a memory cgroup of the same local size plus {}; for each workload, compare with the "
                  "better page-cluster",
                  format_size(peer_allowance_bytes)));
  figures.note(
      "CPU time counts all threads of the measured process; kthread is what the kernel's own threads used "
      "meanwhile (for swap and loop devices; work for other programs is in it too)");
}

table_layout layout() {
  return {{{"p50_ns", "p50 us", 1000, 2},
           {"p99_ns", "p99 us", 1000, 1},
           {"cpu_ns_per_access", "CPU us", 1000, 2},
           {"kernel_thread_cpu_ns_per_access", "kthread", 1000, 2},
           {"accesses_per_s", "k acc/s", 1000, 1},
           {"bytes_per_s", "GB/s", 1e9, 2}},
          "accesses_per_s",
          inline_name};
}

}  // namespace

result<outcome> run_pager(const settings& chosen) {
  const sizes picked = choose_sizes(chosen);
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 3);
  report figures("pager");
  figures.set("runs", runs);
  figures.set("working_set_bytes", static_cast<double>(picked.working_set_bytes));
  figures.set("local_bytes", static_cast<double>(picked.local_bytes));
  figures.set("peer_allowance_bytes", static_cast<double>(peer_allowance_bytes));
  figures.set("sequential_accesses", static_cast<double>(picked.pass.sequential_accesses));
  figures.set("stride_accesses", static_cast<double>(picked.pass.stride_accesses));
  figures.set("random_accesses", static_cast<double>(picked.pass.random_accesses));

  std::vector<configuration> measured = all_configurations();
  std::erase_if(measured, [&](const configuration& one) {
    return one.name.find(chosen.only) == std::string::npos || (chosen.only.empty() && !one.evicts.empty());
  });
  for (unsigned run = 1; run <= runs; ++run) {
    // Those that cannot run are tried again each time: a failure in one run must not pass for a rule.
    for (const configuration& one : measured) {
      fmt::print(stderr, "pager: run {} of {}: {}\n", run, runs, one.name);
      const result<void> done = run_configuration(one, picked, figures);
      if (stop_requested()) return error{"stopped by a signal; devices, swap and cgroups are undone", EINTR};
      if (!done) figures.skip(one.name, done.error().message);
    }
  }
  record_aims(figures);
  record_notes(figures);
  return outcome{std::move(figures), layout()};
}

}  // namespace far::bench
