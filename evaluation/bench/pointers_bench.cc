// `farheap-bench pointers`: the cost of far pointers for programs that follow many of them, with everything local.
#include <errno.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "benchmark.h"
#include "heap_bench.h"

namespace far::bench {

namespace {

constexpr const char* raw_name = "raw pointers";
constexpr double aimed_ratio = 1.1;

}  // namespace

result<outcome> run_pointers(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 3 : 9);
  report figures("pointers");
  figures.set("runs", runs);
  fmt::print(stderr, "pointers: {} runs\n", runs);
  const auto samples = run_in_child({{"benchmark", "pointers"}, {"runs", runs}, {"factor", chosen.quick ? 1 : 10}});
  if (stop_requested()) return error{"stopped by a signal", EINTR};
  if (!samples) return samples.error();
  for (const nlohmann::json& one : samples.value()) {
    add_samples(figures, {one.at("workload"), one.at("configuration"), 1}, one.at("metrics"));
  }
  for (const row_key& key : figures.keys()) {
    if (key.configuration == raw_name) continue;
    figures.aim(fmt::format("CPU time of {}, over raw pointers", key.workload), figures.median(key, "ratio"), "x",
                aimed_ratio, false);
  }
  figures.note(
      "an operation is a node of a walk over a list of 1000 (a scope for each walk), or a look-up in a tree or map (a "
      "scope "
      "for each look-up); ratios are medians over pairs of runs");
  return outcome{std::move(figures), {{{"ns", "CPU ns", 1, 2}, {"ratio", "ratio", 1, 3}}, {}, {}}};
}

}  // namespace far::bench
