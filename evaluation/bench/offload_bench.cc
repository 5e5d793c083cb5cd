// `farheap-bench offload`: sums, medians, selections and a plugin's function of numbers of which a quarter fits in
// local memory: where they are, or of what is fetched (AIFM, section 4.3).
#include <errno.h>
#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answers_of_a_core.h"
#include "application_programs.h"
#include "background_server.h"
#include "base/units.h"
#include "benchmark.h"
#include "child.h"
#include "common/json.h"
#include "heap_bench.h"
#include "offload_calls.h"
#include "peer_setup.h"
#include "same_results.h"

namespace far::bench {

namespace {

struct way {
  const char* name;
  const char* option;
};
constexpr std::array ways = {
    way{"summarize(), where the numbers are", "summarize"},
    way{"fetched, for_each_chunk() on fibers", "fibers"},
    way{"fetched, chunks()", "chunks"},
    way{"median(), where the numbers are", "median"},
    way{"median of what is fetched", "median_fetched"},
    way{"select(), where the numbers are", "select"},
    way{"select from what is fetched", "select_fetched"},
    way{"quantile(), where the numbers are", "quantile"},
    way{"quantile() of reals that are all different, where the numbers are", "quantile_of_reals"},
    way{"largest(), where the numbers are", "largest"},
    way{"tally(), where the numbers are", "tally"},
    way{"distinct(), where the numbers are", "distinct"},
    way{"count_text(), where the numbers are", "count_text"},
    way{"find_text(), where the numbers are", "find_text"},
    way{"compute(), a plugin's function where the numbers are", "function"},
    way{"the same function of what is fetched", "function_fetched"},
    way{"group_by(), where the numbers are", "table_groups"},
    way{"group_by() with medians, where the numbers are", "table_medians"},
    way{"group_by() with medians of what is fetched", "table_medians_fetched"},
    way{"group_by() of what is fetched", "table_groups_fetched"},
};

// Of the same vector, after one that is not counted.
constexpr unsigned walks_a_run = 3;

constexpr const char* one_server = "farheapd on loopback";
constexpr const char* three_servers = "three of them, without copies";
constexpr std::uint64_t start_deadline_ns = 10'000'000'000;
constexpr std::uint64_t run_deadline_ns = 600'000'000'000;

struct far_tier {
  std::string workload;
  std::string uri;
  std::vector<pid_t> servers = {};  // their processes, if it has any
};

// Of a table there are keys, too.
std::size_t numbers_of(const way& one, std::size_t numbers) {
  return std::string(one.option).starts_with("table_") ? numbers / 2 : numbers;
}

void measure(const way& one, const far_tier& tier, std::size_t numbers, report& figures) {
  const row_key key{tier.workload, one.name, 1};
  const auto got = run_in_child({{"benchmark", "offload"},
                                 {"way", one.option},
                                 {"far", tier.uri},
                                 {"numbers", numbers_of(one, numbers)},
                                 {"local_bytes", numbers_of(one, numbers) * sizeof(double) / 4},
                                 {"runs", walks_a_run},
                                 {"servers", tier.servers}});
  if (!got) return figures.skip(one.name, fmt::format("{}: {}", tier.workload, got.error().message));
  for (const auto& [metric, values] : got.value().items()) {
    for (const evaluation::json& value : values) figures.add(key, metric, value);
  }
}

// ---- analyses of a table ----

// With the columns that the analyses add.
constexpr std::size_t bytes_a_row = 46;

struct table_way {
  const char* name;
  const char* questions;
  unsigned percent;  // of the table that fits in local memory
};
constexpr const char* automatic_way = "a fifth local, questions as the table chooses";
constexpr std::array table_ways = {
    table_way{"all local", "here", 250},
    table_way{"a fifth local, questions there", "there", 20},
    table_way{"a fifth local, questions here", "here", 20},
    table_way{automatic_way, "automatic", 20},
    table_way{"a twentieth local, questions there", "there", 5},
    table_way{"a twentieth local, questions here", "here", 5},
    table_way{"a twentieth local, questions as the table chooses", "automatic", 5},
};

// ---- the same analyses on columns of the standard library, under swap ----

struct swap_way {
  const char* name;
  peer kind;
  int cluster;  // page-cluster
};
constexpr const char* std_local = "std columns, all local";
constexpr std::array swap_ways = {
    swap_way{"std columns, a fifth local, swap on loop in RAM, page-cluster 3", peer::loop_swap, 3},
    swap_way{"std columns, a fifth local, swap on loop in RAM, page-cluster 0", peer::loop_swap, 0},
    swap_way{"std columns, a fifth local, swap on zram, page-cluster 3", peer::zram_swap, 3},
    swap_way{"std columns, a fifth local, swap on zram, page-cluster 0", peer::zram_swap, 0},
};
constexpr const char* peers_workload = "nine analyses of a table";

// What the analyses find is the same on all columns, wherever these are; sums of kilometres are added in another order
// on a table.
class found_by_all {
 public:
  // Empty: it is what the others have found.
  [[nodiscard]] std::optional<error> compare(const std::string& who, const std::string& results) {
    if (results_.empty()) results_ = results;
    if (are_same_results(results, results_)) return std::nullopt;
    return error{fmt::format("{}: its results are other ones: {} and not {}", who, results, results_), EILSEQ};
  }

 private:
  std::string results_;
};

// Their share is of what their own process holds. Times are for as many pages as the table has. An error: the results
// of a way are wrong.
[[nodiscard]] std::optional<error> measure_swap(std::size_t rows, const settings& chosen, found_by_all& found,
                                                report& figures) {
  const application columns{peers_workload, "analytics", {"--rows", std::to_string(rows)}};
  const double pages = static_cast<double>(rows) * bytes_a_row / page_bytes;
  const auto is_chosen = [&](const char* name) { return std::string(name).find(chosen.only) != std::string::npos; };
  const auto is_any = [&](const swap_way& one) { return is_chosen(one.name); };
  if (std::ranges::none_of(swap_ways, is_any)) return std::nullopt;
  const auto local = run_application(columns, "std", {}, {}, run_deadline_ns);
  if (!local) {
    figures.skip(std_local, local.error().message);
    return std::nullopt;
  }
  if (auto wrong = found.compare(std_local, local.value().results)) return wrong;
  figures.add({peers_workload, std_local, 1}, "elapsed_ns", local.value().seconds * 1e9 / pages);
  const auto all_bytes = static_cast<std::uint64_t>(local.value().peak_bytes);
  for (const swap_way& one : swap_ways) {
    if (stop_requested() || !is_chosen(one.name)) continue;
    fmt::print(stderr, "offload: {}\n", one.name);
    const auto ran = run_under_swap(columns, one.kind, one.cluster, all_bytes, all_bytes / 5, run_deadline_ns);
    if (!ran) {
      figures.skip(one.name, ran.error().message);
      continue;
    }
    if (auto wrong = found.compare(one.name, ran.value().results)) return wrong;
    figures.add({peers_workload, one.name, 1}, "elapsed_ns", ran.value().seconds * 1e9 / pages);
  }
  return std::nullopt;
}

// The better swap, beside the table as it chooses, with a fifth of its memory.
void aim_at_swap(const std::vector<far_tier>& tiers, report& figures) {
  double best = 0;
  for (const swap_way& one : swap_ways) {
    const double taken = figures.median({peers_workload, one.name, 1}, "elapsed_ns");
    if (taken > 0) best = best == 0 ? taken : std::min(best, taken);
  }
  for (const far_tier& tier : tiers) {
    const std::string workload = "nine analyses of a table, " + tier.workload;
    const double mine = figures.median({workload, automatic_way, 1}, "elapsed_ns");
    if (best > 0 && mine > 0) {
      figures.aim(fmt::format("{}, {}: speed over the better swap", workload, automatic_way), best / mine, "x", 3,
                  true);
    }
  }
}

// The nine analyses of taxi trips. What they find in far tables is the same, bit for bit.
[[nodiscard]] std::optional<error> measure_table(const far_tier& tier, std::size_t rows, const settings& chosen,
                                                 found_by_all& found, report& figures) {
  const application table{"table", "analytics-table", {"--rows", std::to_string(rows)}};
  const double pages = static_cast<double>(rows) * bytes_a_row / page_bytes;
  std::string results;
  for (const table_way& one : table_ways) {
    if (stop_requested() || std::string(one.name).find(chosen.only) == std::string::npos) continue;
    const std::size_t local_bytes = rows * bytes_a_row * one.percent / 100;
    const auto ran = run_application(
        table, "far", {}, {"--local", std::to_string(local_bytes), "--far", tier.uri, "--questions", one.questions},
        run_deadline_ns);
    const std::string workload = "nine analyses of a table, " + tier.workload;
    if (!ran) {
      figures.skip(one.name, fmt::format("{}: {}", workload, ran.error().message));
      continue;
    }
    if (results.empty()) results = ran.value().results;
    if (ran.value().results != results) return error{fmt::format("{}: not bit for bit the same", one.name), EILSEQ};
    if (auto wrong = found.compare(one.name, results)) return wrong;
    figures.add({workload, one.name, 1}, "elapsed_ns", ran.value().seconds * 1e9 / pages);
    figures.add({workload, one.name, 1}, "waits", ran.value().misses / pages);
  }
  return std::nullopt;
}

// `memory:`, one server, and three. Servers end with `servers`.
result<std::vector<far_tier>> open_tiers(std::vector<std::unique_ptr<background_server>>& servers) {
  std::vector<far_tier> tiers;
  tiers.push_back({"memory, 5 us and 25 Gb/s", network_uri});
  for (const std::size_t count : {1u, 3u}) {
    far_tier opened{count == 1 ? one_server : three_servers, "tcp://"};
    for (std::size_t i = 0; i < count; ++i) {
      auto server = background_server::start(
          {product("farheapd"), "--listen", "127.0.0.1:0", "--memory", "2G", "--plugin", product("bench_functions.so")},
          "listening on", start_deadline_ns);
      if (!server) return server.error();
      const std::string& line = server.value()->ready_line();
      opened.uri += (i == 0 ? "" : ",") + line.substr(line.find_last_of(' ') + 1);
      opened.servers.push_back(server.value()->process());
      servers.push_back(std::move(server).value());
    }
    tiers.push_back(std::move(opened));
  }
  return tiers;
}

}  // namespace

result<outcome> run_offload(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 5);
  const std::size_t numbers = (chosen.quick ? 16 : 48) * mib;
  const std::size_t table_rows = chosen.quick ? 8'000'000 : 12'000'000;
  report figures("offload");
  figures.set("runs", runs);
  figures.set("bytes", static_cast<double>(numbers * sizeof(double)));
  std::vector<std::unique_ptr<background_server>> servers;
  const result<std::vector<far_tier>> opened = open_tiers(servers);
  if (!opened) return opened.error();
  const std::vector<far_tier>& tiers = opened.value();
  found_by_all found;
  for (unsigned run = 1; run <= runs; ++run) {
    if (std::string("empty calls").find(chosen.only) != std::string::npos) measure_empty_calls(figures);
    if (std::string("summaries by a core").find(chosen.only) != std::string::npos) measure_answers_of_a_core(figures);
    if (const auto wrong = measure_swap(table_rows, chosen, found, figures)) return *wrong;
    for (const far_tier& tier : tiers) {
      for (const way& one : ways) {
        if (stop_requested()) return error{"stopped by a signal", EINTR};
        if (std::string(one.name).find(chosen.only) == std::string::npos) continue;
        fmt::print(stderr, "offload: run {} of {}: {}, {}\n", run, runs, tier.workload, one.name);
        measure(one, tier, numbers, figures);
      }
      // Three servers are about the bytes that travel.
      if (tier.servers.size() > 1) continue;
      fmt::print(stderr, "offload: run {} of {}: {}, a table\n", run, runs, tier.workload);
      if (const auto wrong = measure_table(tier, table_rows, chosen, found, figures)) return *wrong;
    }
  }
  for (const far_tier& tier : tiers) {
    const std::string workload = "nine analyses of a table, " + tier.workload;
    const double all_local = figures.median({workload, table_ways[0].name, 1}, "elapsed_ns");
    for (const table_way& one : table_ways) {
      const double taken = figures.median({workload, one.name, 1}, "elapsed_ns");
      if (one.percent >= 100 || one.questions == std::string_view("here") || all_local <= 0 || taken <= 0) continue;
      figures.aim(fmt::format("{}, {}: speed over all local", workload, one.name), all_local / taken, "x",
                  one.percent == 20 ? 0.95 : 0.8, true);
    }
  }
  for (const far_tier& tier : tiers) {
    for (const way& one : ways) {
      if (!std::string_view(one.name).ends_with("where the numbers are")) continue;
      const double share = figures.median({tier.workload, one.name, 1}, "wire_share");
      if (share == 0) continue;
      figures.aim(fmt::format("{}, {}: bytes over the wire of those read", tier.workload, one.name), share, "x", 0.02,
                  false);
    }
  }
  aim_at_swap(tiers, figures);
  aim_answers_of_a_core(figures);
  aim_empty_calls(figures);
  figures.note("times are those of 4 KiB of numbers; a quarter of them fits in local memory");
  return outcome{std::move(figures),
                 {{{"elapsed_ns", "ns a page", 1, 0},
                   {"fetched", "pages fetched", 1, 3},
                   {"cpu_ns", "ns of CPU", 1, 0},
                   {"server_cpu_ns", "of the server", 1, 0},
                   {"wire_bytes", "bytes sent", 1, 0},
                   {"wire_share", "of those read", 1, 4},
                   {"waits", "waits", 1, 3},
                   {"bytes_per_s", "GB/s", 1e9, 1},
                   {"p50_ns", "p50 us", 1000, 1},
                   {"p99_ns", "p99 us", 1000, 1}},
                  {},
                  {}}};
}

}  // namespace far::bench
