// `farheap-bench overhead`: the cost of `farheap run` for a program that fits in its budget. Nothing is evicted, so all
// there is to pay is start-up, the allocator, and the bookkeeping of mappings.
#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "benchmark.h"
#include "child.h"

namespace far::bench {

namespace {

constexpr const char* native_name = "native";
constexpr const char* farheap_name = "farheap run";
constexpr const char* budget = "4G";  // more than any of the programs needs
constexpr std::uint64_t child_deadline_ns = 60'000'000'000;
constexpr double aimed_cpu_ratio = 1.03;

constexpr std::array programs = {"start", "malloc", "touch", "columns"};

std::vector<std::string> command_for(const std::string& configuration, const std::string& program, bool quick) {
  std::vector<std::string> command;
  if (configuration == farheap_name) command = {product("farheap"), "run", "--local", budget, "--"};
  for (const std::string& part :
       {own_path(), std::string("overhead-child"), program, std::string(quick ? "quick" : "full")}) {
    command.push_back(part);
  }
  return command;
}

// One pair of runs of a program, natively first or last in turn, so that a drift of the machine's speed cancels out.
result<void> run_pair(const std::string& program, bool native_first, bool quick, report& figures) {
  child_outcome outcomes[2];
  for (const int step : {0, 1}) {
    const bool native = (step == 0) == native_first;
    const char* configuration = native ? native_name : farheap_name;
    auto ended = run_child(command_for(configuration, program, quick), child_deadline_ns);
    if (!ended)
      return error{fmt::format("{}, {}: {}", configuration, program, ended.error().message), ended.error().code};
    outcomes[native ? 0 : 1] = ended.value();
  }
  const auto& [natively, under] = outcomes;
  if (natively.output != under.output) {
    return error{fmt::format("{}: under farheap run it printed '{}' where it natively prints '{}'", program,
                             under.output, natively.output),
                 EPROTO};
  }
  for (const int turn : {0, 1}) {
    const row_key key{program, turn == 0 ? native_name : farheap_name, 1};
    figures.add(key, "cpu_ns", static_cast<double>(outcomes[turn].cpu_ns));
    figures.add(key, "elapsed_ns", static_cast<double>(outcomes[turn].elapsed_ns));
    figures.add(key, "cpu_ratio", static_cast<double>(outcomes[turn].cpu_ns) / static_cast<double>(natively.cpu_ns));
  }
  return {};
}

}  // namespace

result<outcome> run_overhead(const settings& chosen) {
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 3 : 9);
  report figures("overhead");
  figures.set("runs", runs);
  if (access(product("farheap").c_str(), X_OK) != 0) {
    return error{fmt::format("{} is not there; build it first: make build", product("farheap")), ENOENT};
  }
  for (unsigned run = 0; run < runs; ++run) {
    fmt::print(stderr, "overhead: run {} of {}\n", run + 1, runs);
    for (const char* program : programs) {
      const result<void> done = run_pair(program, run % 2 == 0, chosen.quick, figures);
      if (stop_requested()) return error{"stopped by a signal", EINTR};
      if (!done) return done.error();
    }
  }
  for (const char* program : programs) {
    if (program == programs[0]) continue;  // start-up alone is shown, but no program does nothing
    figures.aim(fmt::format("CPU time of {}, farheap run over native", program),
                figures.median({program, farheap_name, 1}, "cpu_ratio"), "x", aimed_cpu_ratio, false);
  }
  figures.note(
      fmt::format("the budget is {}: nothing is evicted; CPU time is that of the whole process, start-up included; "
                  "its ratio is the median over pairs of runs",
                  budget));
  return outcome{std::move(figures),
                 {{{"cpu_ns", "CPU ms", 1e6, 1}, {"elapsed_ns", "time ms", 1e6, 1}, {"cpu_ratio", "CPU ratio", 1, 3}},
                  "elapsed_ns",
                  native_name}};
}

}  // namespace far::bench
