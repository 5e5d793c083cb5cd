#include "application_programs.h"

#include <errno.h>
#include <fmt/format.h>

#include "background_server.h"
#include "child.h"
#include "common/json.h"

namespace far::bench {

namespace {

constexpr std::uint64_t start_deadline_ns = 60'000'000'000;

result<evaluation::json> figures_of(const result<child_outcome>& ended) {
  if (!ended) return ended.error();
  evaluation::json said = evaluation::json::parse(ended.value().output);
  if (!said.is_object() || !said.contains("seconds")) return error{"it printed no figures", EPROTO};
  return said;
}

}  // namespace

std::vector<application> applications(bool quick) {
  const std::uint64_t part = quick ? 4 : 1;
  const auto number = [](std::uint64_t value) { return std::to_string(value); };
  const std::vector<std::string> lookups = {"--keys", number(quick ? 600'000 : 2'000'000), "--lookups",
                                            number(quick ? 200'000 : 10'000'000)};
  const std::vector<std::string> pairs = {"--keys", number(quick ? 160'000 : 640'000), "--operations",
                                          number(2'000'000 / part / part)};
  const auto with = [](std::vector<std::string> arguments, std::initializer_list<const char*> more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const std::vector<std::string> graph = {"--scale", quick ? "19" : "20", "--degree", "12"};
  const std::vector<std::string> server = {"--port", "0", "--memory", "8G", "--threads", "2"};
  const std::vector<std::string> site = {"--keys", number(2'000'000 / part), "--elements", number(24'576 / part)};
  return {
      {"web", "web", with(site, {"--closed-loop", quick ? "40000" : "200000"})},
      // So few requests that all are answered in time with everything local.
      {"web, open loop", "web", with(site, {"--rate", "2000", "--seconds", quick ? "2" : "10"})},
      {"snappy", "snappy", {"--files", "16", "--file-bytes", number((8u << 20) / part)}},
      {"analytics", "analytics", {"--rows", number(4'000'000 / part)}},
      {"hashmap, zipf", "hashmap", with(lookups, {"--zipf", "0.8"})},
      {"hashmap, uniform", "hashmap", with(lookups, {"--zipf", "0"})},
      {"cached, churning zipf", "cached", server, with(pairs, {"--zipf", "1", "--churn", quick ? "25000" : "100000"})},
      {"cached, uniform", "cached", server, with(pairs, {"--zipf", "0"})},
      {"graph, pagerank", "graph", with(graph, {"--job", "pagerank"})},
      {"graph, triangles", "graph", with(graph, {"--job", "triangles"})},
      {"wordcount, words",
       "wordcount",
       {"--bytes", number((256u << 20) / part), "--distinct", number(2'000'000 / part)}},
      {"wordcount, visitors",
       "wordcount",
       {"--bytes", number((96u << 20) / part), "--distinct", number(400'000 / part), "--job", "visitors"}},
  };
}

result<application_outcome> run_application(const application& run, const std::string& build,
                                            const std::vector<std::string>& launcher,
                                            const std::vector<std::string>& more, std::uint64_t deadline_ns) {
  std::vector<std::string> command = launcher;
  command.push_back(product("apps/" + run.name + "-" + build));
  command.insert(command.end(), run.arguments.begin(), run.arguments.end());
  command.insert(command.end(), more.begin(), more.end());
  if (!run.load.empty()) return run_server(command, run.load, deadline_ns);
  command.emplace_back("--json");
  const auto ended = run_child(command, deadline_ns);
  const auto said = figures_of(ended);
  if (!said) return said.error();
  application_outcome outcome;
  outcome.seconds = said.value().at("seconds");
  outcome.cpu_ns = static_cast<double>(ended.value().cpu_ns);
  outcome.peak_bytes = static_cast<double>(ended.value().peak_bytes);
  outcome.results = said.value().at(said.value().contains("results") ? "results" : "checksum").dump();
  if (const evaluation::json* const far = said.value().find("far"); far != nullptr && far->is_object()) {
    outcome.misses = far->at("misses");
  }
  if (const evaluation::json* const latency = said.value().find("latency_us"); latency != nullptr) {
    outcome.p50_ns = latency->at("p50").get<double>() * 1000;
    outcome.p99_ns = latency->at("p99").get<double>() * 1000;
  }
  return outcome;
}

result<application_outcome> run_under_swap(const application& run, peer kind, int cluster, std::uint64_t all_bytes,
                                           std::uint64_t local_bytes, std::uint64_t deadline_ns) {
  return run_in_peer(
      kind, cluster, all_bytes, local_bytes, peer_allowance_bytes,
      [&](const std::vector<std::string>& launcher) { return run_application(run, "std", launcher, {}, deadline_ns); });
}

result<application_outcome> run_server(const std::vector<std::string>& command, const std::vector<std::string>& load,
                                       std::uint64_t deadline_ns) {
  auto server = background_server::start(command, "listening", start_deadline_ns);
  if (!server) return server.error();
  const std::string& ready = server.value()->ready_line();
  std::vector<std::string> client = {product("apps/cached-load"), "--json", "--port",
                                     ready.substr(ready.find_last_of(' ') + 1)};
  client.insert(client.end(), load.begin(), load.end());
  const auto said = figures_of(run_child(client, deadline_ns));
  if (!said) return said.error();
  application_outcome outcome;
  outcome.seconds = said.value().at("seconds");
  outcome.cpu_ns = static_cast<double>(server.value()->cpu_ns());
  outcome.peak_bytes = static_cast<double>(server.value()->peak_bytes());
  // The client verifies each value.
  outcome.results =
      fmt::format("{} gets, {} hits, {} sets", said.value().at("gets").get<std::uint64_t>(),
                  said.value().at("hits").get<std::uint64_t>(), said.value().at("sets").get<std::uint64_t>());
  return outcome;
}

}  // namespace far::bench
