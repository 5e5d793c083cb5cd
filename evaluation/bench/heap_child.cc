#include <fmt/format.h>

#include <array>
#include <exception>
#include <utility>

#include "base/units.h"
#include "benchmark.h"
#include "child.h"
#include "common/json.h"
#include "heap_bench.h"

namespace far::bench {

namespace {

struct entry {
  const char* name;
  result<evaluation::json> (*run)(const evaluation::json& assignment);
};

constexpr std::array entries = {
    entry{"deref", deref_child},           entry{"objects", objects_child},   entry{"hybrid", hybrid_child},
    entry{"pauseless", pauseless_child},   entry{"pressure", pressure_child}, entry{"pointers", pointers_child},
    entry{"containers", containers_child}, entry{"hints", hints_child},       entry{"batches", batch_child},
    entry{"policies", policies_child},     entry{"offload", offload_child},   entry{"intensity", intensity_child},
};

// far::runtime throws when it cannot start.
result<evaluation::json> run_entry(const entry& one, const evaluation::json& assignment) {
  try {
    return one.run(assignment);
  } catch (const std::exception& failed) {
    return error{failed.what(), ECANCELED};
  }
}

}  // namespace

result<evaluation::json> run_in_child(const evaluation::json& assignment, const std::vector<std::string>& before) {
  std::vector<std::string> arguments = before;
  arguments.insert(arguments.end(), {own_path(), "heap-child", assignment.dump()});
  auto ended = run_child(arguments, heap_child_deadline_ns);
  if (!ended) return ended.error();
  evaluation::json answer = evaluation::json::parse(ended.value().output);
  if (answer.is_null()) return error{"its process printed no figures", EPROTO};
  return answer;
}

int heap_child(const std::string& specification) {
  const evaluation::json assignment = evaluation::json::parse(specification);
  for (const entry& one : entries) {
    if (!assignment.is_object() || assignment.value("benchmark", std::string()) != one.name) continue;
    const result<evaluation::json> done = run_entry(one, assignment);
    if (!done) {
      fmt::print(stderr, "{}\n", done.error().message);
      return 1;
    }
    fmt::print("{}\n", done.value().dump());
    return 0;
  }
  fmt::print(stderr, "heap-child is started by farheap-bench itself\n");
  return 1;
}

void add_samples(report& figures, const row_key& key, const evaluation::json& metrics) {
  for (const auto& [metric, value] : metrics.items()) figures.add(key, metric, value.get<double>());
}

std::optional<evaluation::json> measure(report& figures, const row_key& key, const evaluation::json& assignment) {
  result<evaluation::json> measured = run_in_child(assignment);
  if (stop_requested()) return std::nullopt;
  if (!measured) {
    figures.skip(key.configuration, measured.error().message);
    return std::nullopt;
  }
  add_samples(figures, key, measured.value().at("metrics"));
  return std::move(measured).value();
}

transfer_counts count_transfers(const far::runtime& runtime) {
  const far::runtime_statistics now = runtime.statistics();
  return {{"object_fetches_per_access", now.object_fetches},
          {"fetched_pages_per_access", now.fetched_pages},
          {"evicted_pages_per_access", now.evicted_pages},
          {"fetched_bytes_per_access", now.object_fetch_bytes + now.fetched_pages * page_bytes}};
}

void add_transfers(const transfer_counts& before, const transfer_counts& after, double accesses,
                   evaluation::json& metrics) {
  for (const auto& [name, value] : after) {
    const auto place = before.find(name);
    const std::uint64_t since = value - (place == before.end() ? 0 : place->second);
    metrics[name] = static_cast<double>(since) / accesses;
  }
}

}  // namespace far::bench
