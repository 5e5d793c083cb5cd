// `farheap-bench objects`: uniformly random accesses to objects of which a quarter fits in local memory (AIFM, figure
// 1): Farheap beside Linux swap, and memory that fits.
#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/units.h"
#include "benchmark.h"
#include "common/json.h"
#include "heap_bench.h"
#include "peer_setup.h"

namespace far::bench {

namespace {

struct configuration {
  std::string name;
  std::string far_uri = {};  // empty: plain memory
  double page_path_share = 0.8;
  peer kind = peer::none;
};

constexpr const char* local_name = "local memory, all fits";
constexpr const char* farheap_prefix = "farheap, ";
constexpr const char* swap_prefix = "swap, ";

std::vector<configuration> all_configurations() {
  return {
      {.name = local_name},
      {.name = "farheap, 5 us and 25 Gb/s", .far_uri = network_uri},
      {.name = "farheap, 5 us and 25 Gb/s, object path", .far_uri = network_uri, .page_path_share = 2},
      {.name = "farheap, memory:", .far_uri = "memory:"},
      {.name = "swap, loop in RAM", .kind = peer::loop_swap},
      {.name = "swap, zram", .kind = peer::zram_swap},
  };
}

struct plan {
  std::uint64_t bytes = 0;
  std::uint64_t local_bytes = 0;
  std::uint64_t pass_ns = 0;
  std::vector<unsigned> fibers;
  std::vector<unsigned> threads;
  std::vector<std::size_t> object_bytes;
};

plan make_plan(const settings& chosen) {
  plan created;
  created.bytes = chosen.working_set_bytes != 0 ? chosen.working_set_bytes : (chosen.quick ? 64 * mib : 256 * mib);
  created.bytes = round_up(std::max<std::uint64_t>(created.bytes, 64 * mib), 2 * mib);  // a runtime has at least 16 MiB
  created.local_bytes = created.bytes / 4;
  created.pass_ns = chosen.quick ? 100'000'000 : 500'000'000;
  created.fibers = chosen.quick ? std::vector<unsigned>{1, 16, 256} : std::vector<unsigned>{1, 4, 16, 64, 256};
  // More threads than can run at a time, so that some wait for the device.
  const unsigned most_threads = std::max(16u, 4 * std::thread::hardware_concurrency());
  created.threads = chosen.quick ? std::vector<unsigned>{1, most_threads} : std::vector<unsigned>{1, 4, most_threads};
  created.object_bytes =
      chosen.quick ? std::vector<std::size_t>{64, 4096} : std::vector<std::size_t>{64, 256, 1024, 4096};
  return created;
}

std::string workload_name(std::size_t object_bytes, const std::string& operation) {
  return fmt::format("{} B, {}", object_bytes, operation);
}

// With at most so many lanes (fibers or threads).
result<void> run_configuration(const configuration& one, const plan& picked, std::size_t object_bytes,
                               unsigned most_lanes, report& figures) {
  auto around = set_up_peer(one.kind, 0, picked.bytes, picked.local_bytes);
  if (!around) return around.error();
  const memory_cgroup* const cgroup = around.value().cgroup.get();
  std::vector<unsigned> lanes = one.far_uri.empty() ? picked.threads : picked.fibers;
  std::erase_if(lanes, [most_lanes](unsigned count) { return count > most_lanes; });
  const auto passes = run_in_child({{"benchmark", "objects"},
                                    {"far_uri", one.far_uri},
                                    {"page_path_share", one.page_path_share},
                                    {"cgroup_members_file", cgroup != nullptr ? cgroup->members_file() : ""},
                                    {"bytes", picked.bytes},
                                    {"local_bytes", picked.local_bytes},
                                    {"object_bytes", object_bytes},
                                    {"pass_ns", picked.pass_ns},
                                    {"warm_up_lanes", std::min(16u, most_lanes)},
                                    {"lanes", lanes}});
  if (!passes) return passes.error();
  for (const evaluation::json& pass : passes.value()) {
    const row_key key{workload_name(object_bytes, pass.at("operation")), one.name, pass.at("lanes")};
    add_samples(figures, key, pass.at("metrics"));
  }
  return {};
}

// A peer with many threads in a small cgroup may find every page busy, and the kernel ends it; with few threads it
// works.
result<void> run_patiently(const configuration& one, const plan& picked, std::size_t object_bytes, report& figures) {
  result<void> done = run_configuration(one, picked, object_bytes, ~0u, figures);
  if (done || one.kind == peer::none || stop_requested()) return done;
  for (const unsigned most_threads : {4u, 1u}) {
    if (!run_configuration(one, picked, object_bytes, most_threads, figures)) continue;
    figures.note(
        fmt::format("{}, {} B: with more threads than {} its process {}, so the row of more threads is missing",
                    one.name, object_bytes, most_threads, done.error().message));
    return {};
  }
  return done;
}

// The most accesses a second of a workload among configurations that begin with `prefix`, at any number of fibers or
// threads: each in its best setting. `row`: receives its row, if the caller wants it.
double best(const report& figures, const std::string& workload, const std::string& prefix, row_key* row = nullptr) {
  double found = 0;
  for (const row_key& key : figures.keys()) {
    if (key.workload != workload || !key.configuration.starts_with(prefix)) continue;
    const double one = figures.median(key, "accesses_per_s");
    if (one <= found) continue;
    found = one;
    if (row != nullptr) *row = key;
  }
  return found;
}

void record_aims(report& figures) {
  row_key small{};
  const double reads = best(figures, workload_name(64, "read"), farheap_prefix + std::string("5 us"), &small);
  if (reads > 0) {
    const std::string what = fmt::format("64 B, read: {} ({} fibers)", small.configuration, small.threads);
    figures.aim(what, reads / 1e6, "M acc/s", 4, true);
    figures.aim(what + ", CPU time", figures.median(small, "cpu_ns_per_access") / 1e3, "us", 0.5, false);
  }
  for (const auto& [bytes, least] : {std::pair<std::size_t, double>{64, 10}, {4096, 3}}) {
    for (const char* operation : {"read", "read-modify-write"}) {
      const std::string workload = workload_name(bytes, operation);
      row_key own{};
      row_key other{};
      const double peers = best(figures, workload, swap_prefix, &other);
      const double ours = best(figures, workload, farheap_prefix + std::string("5 us"), &own);
      if (peers <= 0 || ours <= 0) continue;
      figures.aim(fmt::format("{}: {} ({} fibers) over {} ({} threads)", workload, own.configuration, own.threads,
                              other.configuration, other.threads),
                  ours / peers, "x", least, true);
    }
  }
}

std::vector<chart> draw(const report& figures, const plan& picked) {
  std::vector<chart> drawn;
  for (const std::size_t bytes : picked.object_bytes) {
    for (const char* operation : {"read", "read-modify-write"}) {
      chart one;
      one.file = fmt::format("objects-{}-{}", bytes, operation);
      one.title = fmt::format("Random {} of {} B objects, a quarter local", operation, bytes);
      one.x = {.title = "fibers, or threads", .along = spacing::doublings};
      one.y = {.title = "accesses/s", .along = spacing::logarithmic};
      for (const configuration& shown : all_configurations()) {
        line points{shown.name, {}};
        for (const row_key& key : figures.keys()) {
          if (key.workload != workload_name(bytes, operation) || key.configuration != shown.name) continue;
          points.points.emplace_back(key.threads, figures.median(key, "accesses_per_s"));
        }
        if (!points.points.empty()) one.lines.push_back(std::move(points));
      }
      drawn.push_back(std::move(one));
    }
  }
  return drawn;
}

report new_report(const plan& picked, unsigned runs) {
  report figures("objects");
  figures.set("runs", runs);
  figures.set("working_set_bytes", static_cast<double>(picked.bytes));
  figures.set("local_bytes", static_cast<double>(picked.local_bytes));
  figures.set("peer_allowance_bytes", static_cast<double>(peer_allowance_bytes));
  figures.set("pass_ns", static_cast<double>(picked.pass_ns));
  figures.note("threads: fibers of Farheap, which run on one worker for each CPU; OS threads of the others");
  figures.note(
      "local memory is a quarter of the objects' bytes; Farheap's headers and alignment have to fit in it, too");
  figures.note(fmt::format("peers run in a memory cgroup of the same local size plus {}, with page-cluster 0",
                           format_size(peer_allowance_bytes)));
  return figures;
}

}  // namespace

result<outcome> run_objects(const settings& chosen) {
  const plan picked = make_plan(chosen);
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 3);
  report figures = new_report(picked, runs);
  for (unsigned run = 1; run <= runs; ++run) {
    for (const std::size_t object_bytes : picked.object_bytes) {
      for (const configuration& one : all_configurations()) {
        if (one.name.find(chosen.only) == std::string::npos) continue;
        fmt::print(stderr, "objects: run {} of {}: {} B, {}\n", run, runs, object_bytes, one.name);
        const result<void> done = run_patiently(one, picked, object_bytes, figures);
        if (stop_requested()) return error{"stopped by a signal; devices, swap and cgroups are undone", EINTR};
        if (!done) figures.skip(one.name, fmt::format("{} B: {}", object_bytes, done.error().message));
      }
    }
  }
  record_aims(figures);
  std::vector<chart> charts = draw(figures, picked);
  return outcome{std::move(figures),
                 {{{"accesses_per_s", "k acc/s", 1000, 1},
                   {"cpu_ns_per_access", "CPU us", 1000, 2},
                   {"kernel_thread_cpu_ns_per_access", "kthread", 1000, 2},
                   {"object_fetches_per_access", "objects", 1, 2},
                   {"fetched_pages_per_access", "pages in", 1, 2},
                   {"fetched_bytes_per_access", "bytes in", 1, 0}},
                  "accesses_per_s",
                  local_name},
                 std::move(charts)};
}

}  // namespace far::bench
