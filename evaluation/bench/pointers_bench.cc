// `farheap-bench pointers`: the cost of far pointers for programs that follow many of them, with everything local.
#include <errno.h>
#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "benchmark.h"
#include "callgrind.h"
#include "common/json.h"
#include "heap_bench.h"

namespace far::bench {

namespace {

constexpr const char* raw_name = "raw pointers";
constexpr const char* far_name = "far pointers";
constexpr double aimed_ratio = 1.15;
// A node of a list in the first cache takes some four cycles, so each instruction shows.
constexpr const char* list_in_l1 = "list, 1 k";
constexpr double aimed_ratio_of_list = 1.3;
constexpr std::size_t counted_operations = 100'000;

void count_all(report& figures) {
  struct counted {
    const char* workload;
    const char* configuration;
    const char* marker;  // in pointers_child.cc
  };
  constexpr std::array all = {
      counted{"list, 1 k", raw_name, "pointers_list_raw"},    counted{"list, 1 k", far_name, "pointers_list_far"},
      counted{"tree, 1 k", raw_name, "pointers_tree_raw"},    counted{"tree, 1 k", far_name, "pointers_tree_far"},
      counted{"hash map, 1 k", raw_name, "pointers_map_raw"}, counted{"hash map, 1 k", far_name, "pointers_map_far"}};
  std::vector<std::string> markers;
  for (const counted& one : all) markers.emplace_back(one.marker);
  const auto found =
      count_instructions({{"benchmark", "pointers"}, {"counted_operations", counted_operations}}, markers);
  if (!found) return figures.skip("instructions", found.error().message);
  for (const counted& one : all) {
    figures.add({one.workload, one.configuration, 1}, "instructions",
                static_cast<double>(found.value().at(one.marker)) / static_cast<double>(counted_operations));
  }
}

}  // namespace

result<outcome> run_pointers(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 3 : 9);
  report figures("pointers");
  figures.set("runs", runs);
  fmt::print(stderr, "pointers: {} runs\n", runs);
  const auto samples = run_in_child({{"benchmark", "pointers"}, {"runs", runs}, {"factor", chosen.quick ? 1 : 10}});
  if (stop_requested()) return error{"stopped by a signal", EINTR};
  if (!samples) return samples.error();
  for (const evaluation::json& one : samples.value()) {
    add_samples(figures, {one.at("workload"), one.at("configuration"), 1}, one.at("metrics"));
  }
  fmt::print(stderr, "pointers: instructions\n");
  count_all(figures);
  if (stop_requested()) return error{"stopped by a signal", EINTR};
  for (const row_key& key : figures.keys()) {
    if (key.configuration == raw_name) continue;
    figures.aim(fmt::format("CPU time of {}, over raw pointers", key.workload), figures.median(key, "ratio"), "x",
                key.workload == list_in_l1 ? aimed_ratio_of_list : aimed_ratio, false);
  }
  figures.note(
      "an operation is a node of a walk over a list of 1000 (a scope for each walk), or a look-up in a tree or map (a "
      "scope "
      "for each look-up); ratios are medians over pairs of runs; instructions are callgrind's, with all that is "
      "called");
  return outcome{std::move(figures),
                 {{{"ns", "CPU ns", 1, 2}, {"ratio", "ratio", 1, 3}, {"instructions", "instr.", 1, 1}}, {}, {}}};
}

}  // namespace far::bench
