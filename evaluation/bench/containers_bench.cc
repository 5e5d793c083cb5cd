// `farheap-bench containers`: the cost of far containers beside those of std, with everything local.
#include <errno.h>
#include <fmt/format.h>

#include <map>
#include <string>

#include "benchmark.h"
#include "common/json.h"
#include "heap_bench.h"

namespace far::bench {

namespace {

constexpr const char* std_name = "std";

// By the beginning of the workload's name; the others have no aim.
const std::map<std::string, double> aimed_ratios = {{"sum by chunks", 1.02},
                                                    {"sum by iterators", 1.1},
                                                    {"random reads", 1.1},
                                                    {"list walk", 1.1},
                                                    {"hash map find", 1.15}};

}  // namespace

result<outcome> run_containers(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 3 : 9);
  report figures("containers");
  figures.set("runs", runs);
  fmt::print(stderr, "containers: {} runs\n", runs);
  const auto samples = run_in_child({{"benchmark", "containers"}, {"runs", runs}, {"factor", chosen.quick ? 1 : 10}});
  if (stop_requested()) return error{"stopped by a signal", EINTR};
  if (!samples) return samples.error();
  for (const evaluation::json& one : samples.value()) {
    add_samples(figures, {one.at("workload"), one.at("configuration"), 1}, one.at("metrics"));
  }
  for (const row_key& key : figures.keys()) {
    const auto aim = aimed_ratios.find(key.workload.substr(0, key.workload.find(',')));
    if (key.configuration == std_name || aim == aimed_ratios.end()) continue;
    figures.aim(fmt::format("CPU time of {}, over std", key.workload), figures.median(key, "ratio"), "x", aim->second,
                false);
  }
  figures.note(
      "elements are 8 bytes; an operation is an element; a scope lasts for 1000 random reads, or a walk over all; sums "
      "by "
      "iterators and random reads are of a kind that compilers cannot vectorise; ratios are medians over pairs of "
      "runs");
  return outcome{std::move(figures), {{{"ns", "CPU ns", 1, 2}, {"ratio", "ratio", 1, 3}}, {}, {}}};
}

}  // namespace far::bench
