#include "unchanged_programs.h"

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "child.h"
#include "common/json.h"
#include "runtime_statistics.h"

namespace far::bench {

namespace {

constexpr std::uint64_t run_deadline_ns = 1'200'000'000'000;
constexpr std::uint64_t setup_deadline_ns = 600'000'000'000;

// The build folder is inside the source tree, as the presets have it.
std::string source(const std::string& path) {
  return product("../../evaluation/apps/" + path);
}

std::string interpreter() {
  return product("../venv-programs/bin/python");
}

}  // namespace

std::vector<unchanged_program> unchanged_programs(bool quick) {
  std::vector<unchanged_program> all;
  const auto add = [&](const std::string& name, std::vector<std::string> command) {
    all.push_back({.name = name, .command = std::move(command)});
  };
  const std::vector<std::string> less = quick ? std::vector<std::string>{"--quick"} : std::vector<std::string>{};
  for (const char* const name : {"pandas", "polars", "tpch", "kmeans", "sort"}) {
    add(name, {interpreter(), source("unchanged/program.py"), name});
    all.back().command.insert(all.back().command.end(), less.begin(), less.end());
  }
  for (const char* const name : {"redis", "memcached"}) {
    add(name, {"/usr/bin/python3", source("unchanged/server.py"), name});
    all.back().is_server = true;
    all.back().command.insert(all.back().command.end(), less.begin(), less.end());
  }
  const std::string bytes = quick ? "256MB" : "1GB";
  const std::string reads = quick ? "200000" : "1000000";
  add("graph", {product("apps/graph"), "--scale", quick ? "16" : "19"});
  add("random reads", {product("apps/pages"), "--bytes", bytes, "--reads", reads});
  add("random reads, 2 threads", {product("apps/pages"), "--bytes", bytes, "--reads", reads, "--threads", "2"});
  add("zipf reads", {product("apps/pages"), "--bytes", bytes, "--reads", reads + "0", "--zipf", "0.99"});
  return all;
}

result<void> prepare_unchanged_programs() {
  if (access(product("apps/graph").c_str(), X_OK) != 0) {
    return error{fmt::format("{} is not there; build it first: make examples", product("apps/graph")), ENOENT};
  }
  const auto created = run_child(
      {source("flights/setup"), product("../venv-programs"), source("unchanged/requirements.txt")}, setup_deadline_ns);
  if (!created) return created.error();
  return {};
}

result<unchanged_outcome> run_unchanged_program(const unchanged_program& run, const std::vector<std::string>& launcher,
                                                const std::string& stats_file) {
  std::vector<std::string> command;
  if (run.is_server) {
    command = run.command;
    command.emplace_back("--");
    command.insert(command.end(), launcher.begin(), launcher.end());
  } else {
    command = launcher;
    command.insert(command.end(), run.command.begin(), run.command.end());
  }
  std::error_code ignored;  // there may be none yet
  std::filesystem::remove(stats_file, ignored);
  const auto ended = run_child(command, run_deadline_ns);
  if (!ended) return ended.error();
  const evaluation::json said = evaluation::json::parse(ended.value().output);
  if (!said.is_object()) return error{"it printed no figures", EPROTO};
  unchanged_outcome outcome;
  outcome.seconds = said.at("seconds");
  outcome.checksum = said.at("checksum");
  outcome.cpu_ns = said.value("cpu_ns", static_cast<double>(ended.value().cpu_ns));
  outcome.peak_bytes = said.value("peak_bytes", static_cast<double>(ended.value().peak_bytes));
  outcome.operations_per_s = said.value("operations_per_s", 0.0);
  outcome.p50_ns = said.value("p50_ns", 0.0);
  outcome.p99_ns = said.value("p99_ns", 0.0);
  outcome.read_ns = said.value("read_ns", 0.0);
  if (stats_file.empty()) return outcome;
  const auto left = read_statistics(stats_file);
  if (!left) return left.error();
  outcome.misses = left.value().misses;
  outcome.fetched_pages = left.value().fetched_pages;
  return outcome;
}

}  // namespace far::bench
