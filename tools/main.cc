// The `farheap` command.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "message.h"
#include "metrics.h"
#include "program.h"
#include "run.h"
#include "top.h"
#include "trace.h"
#include "tune.h"

namespace far::tools {
namespace {

// Adds to the usage of a command that starts a program what CLI11 does not know of.
class program_usage : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, std::move(name));
    usage.insert(usage.find_last_not_of('\n') + 1, " [--] PROGRAM [ARGUMENTS]");
    return usage;
  }
};

// A command takes its arguments (without its name) and returns the exit code.
struct command {
  const char* name;
  const char* summary;
  int (*start)(std::vector<std::string> arguments);
};

// Parses `arguments` with `parser`; true to go on, false to end with `exit_code`.
bool parse(CLI::App& parser, std::vector<std::string> arguments, int& exit_code) {
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    parser.parse(arguments);
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", parser.help());
    exit_code = 0;
  } catch (const CLI::ParseError& failure) {
    exit_code = fail(exit_usage, fmt::format("{}; see `{} --help`", failure.what(), parser.get_name()));
  }
  return false;
}

// Words after the first "--" are the program's, further "--" included. Returns whether there is one.
bool split_program(std::vector<std::string>& arguments, run_options& chosen) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  const bool separated = dashes != arguments.end();
  if (separated) chosen.program.assign(dashes + 1, arguments.end());
  arguments.erase(dashes, arguments.end());
  return separated;
}

void add_run_options(CLI::App& parser, run_options& chosen) {
  parser.formatter(std::make_shared<program_usage>());
  parser
      .add_option("--far", chosen.far_uri,
                  "far tier: file:, file:PATH, tcp://HOST:PORT,..., shm:NAME, redis://HOST:PORT,..., "
                  "redis+cluster://HOST:PORT,..., zmem:SIZE, "
                  "zmem:SIZE,file: or memory:; default: zmem: over file:, as large as the machine can spare")
      ->type_name("URI");
  parser
      .add_option(
          "--policy", chosen.policy,
          "which pages leave first: 2q (the default), 2q:PERCENT for a fixed share of newcomers, second-chance, fifo, "
          "lru, lru:N with N lists, or priority")
      ->type_name("NAME");
  parser
      .add_option(
          "--free-ahead", chosen.free_ahead,
          "the share of --local below which free memory is replenished ahead of need, until it is twice as much, "
          "up to 25%; default: 1%, but 512K to 16M")
      ->type_name("PERCENT");
  parser.add_option("--batch", chosen.batch, "evict so many pages at a time, 1 to 64; default: 64")->type_name("PAGES");
  parser.add_option("--stats-json", chosen.stats_json, "write the statistics to this file at exit")->type_name("FILE");
  parser.add_flag("--local-each", chosen.local_each,
                  "give each process of the tree all of --local; default: they share it");
  parser.add_flag("--verbose", chosen.verbose, "log the choices and actions of the runtime");
}

// Parses the options of a command that starts a program, and finds the program; true to go on.
bool parse_run(CLI::App& parser, std::vector<std::string> arguments, run_options& chosen, int& exit_code) {
  const bool separated = split_program(arguments, chosen);
  if (!separated) parser.prefix_command();
  if (!parse(parser, arguments, exit_code)) return false;
  for (const CLI::Option* option : parser.get_options()) {
    if (option->count() > 0 && option->get_expected_max() > 0 && option->as<std::string>().empty()) {
      exit_code = fail(exit_usage, fmt::format("{} is empty; give it a value or leave it out", option->get_name()));
      return false;
    }
  }
  if (separated) return true;
  chosen.program = parser.remaining();
  if (chosen.program.empty() || !chosen.program.front().starts_with('-')) return true;
  exit_code = fail(exit_usage,
                   fmt::format("there is no option '{}'; see `{} --help`", chosen.program.front(), parser.get_name()));
  return false;
}

int start_run(std::vector<std::string> arguments) {
  run_options chosen;
  CLI::App parser("Runs a program in less local memory than it uses: cold memory goes to the far tier.", "farheap run");
  parser
      .add_option("--local", chosen.local,
                  "budget of local memory: 2G, 512M, 25% of this machine, or auto: as much as it can spare at the "
                  "moment; default: half of what is available")
      ->type_name("SIZE|PERCENT|auto");
  parser
      .add_option(
          "--fault-mode", chosen.fault_mode,
          "which thread resolves a miss: inline (the missing thread), thread (a thread of the runtime), or auto "
          "(the default: inline if the machine supports it)")
      ->type_name("auto|thread|inline");
  add_run_options(parser, chosen);
  parser.footer("Example: farheap run --local 2G -- python3 analysis.py");
  int exit_code = 0;
  if (!parse_run(parser, std::move(arguments), chosen, exit_code)) return exit_code;
  return run(chosen);
}

// Its options are those of `run` but for a default budget, which is small so that the program misses.
int start_trace(std::vector<std::string> arguments) {
  trace_options chosen;
  chosen.run.local = default_trace_local;
  CLI::App parser(
      "Runs a program in little local memory and records its misses: the line, the stack, and the owner of the "
      "memory. Misses are resolved as under `farheap run --fault-mode inline`.",
      "farheap trace");
  parser
      .add_option(
          "--local", chosen.run.local,
          "budget of local memory, small enough that the program misses; a tenth of its memory is a good start; "
          "default: 64M")
      ->type_name("SIZE|PERCENT");
  parser.add_option("-o,--output", chosen.directory, "a new or empty directory; default: farheap-trace.PID")
      ->type_name("DIR");
  parser.add_option("--sample", chosen.sample, "record one miss in N; default: 1, every miss")
      ->type_name("N")
      ->check(CLI::Range(1U, 1'000'000'000U));
  add_run_options(parser, chosen.run);
  parser.footer("Example: farheap trace --local 256M -o misses -- python3 analysis.py");
  int exit_code = 0;
  if (!parse_run(parser, std::move(arguments), chosen.run, exit_code)) return exit_code;
  return trace(chosen);
}

int start_tune(std::vector<std::string> arguments) {
  tune_options chosen;
  CLI::App parser(
      "Runs a program that was compiled with -ffar-objects with each size of objects, and by whole pages, and says "
      "which "
      "is the fastest.",
      "farheap tune");
  parser
      .add_option("--local", chosen.run.local,
                  "budget of local memory: 2G, 512M, or 25% of this machine; default: half of what is available")
      ->type_name("SIZE|PERCENT");
  parser.add_option("--fault-mode", chosen.run.fault_mode, "as of `farheap run`")->type_name("auto|thread|inline");
  parser.add_option("--rounds", chosen.rounds, "how often each size is tried; default: 3")
      ->type_name("N")
      ->check(CLI::Range(1U, 1000U));
  add_run_options(parser, chosen.run);
  parser.footer("Example: farheap tune --local 256M -- ./map");
  int exit_code = 0;
  if (!parse_run(parser, std::move(arguments), chosen.run, exit_code)) return exit_code;
  if (!chosen.run.stats_json.empty()) {
    return fail(exit_usage, "--stats-json is for one run; give it to `farheap run`");
  }
  return tune(chosen);
}

int start_resize(std::vector<std::string> arguments) {
  std::string pid;
  std::string size;
  CLI::App parser("Changes the budget of a program while it runs.", "farheap resize");
  parser.add_option("PID", pid, "the process that `farheap run` became")->required();
  parser.add_option("SIZE", size, "the new budget: 2G, 512M, or 25% of this machine")->required();
  int exit_code = 0;
  if (!parse(parser, std::move(arguments), exit_code)) return exit_code;
  return resize(pid, size);
}

int start_add_server(std::vector<std::string> arguments) {
  std::string pid;
  std::string server;
  CLI::App parser("Adds a memory server to the far tier tcp: of a program while it runs.", "farheap add-server");
  parser.add_option("PID", pid, "the process that `farheap run` became")->required();
  parser.add_option("HOST:PORT", server, "a farheapd that accepts the token and the TLS settings of the first servers")
      ->required();
  int exit_code = 0;
  if (!parse(parser, std::move(arguments), exit_code)) return exit_code;
  return add_server(pid, server);
}

int start_remove_server(std::vector<std::string> arguments) {
  std::string pid;
  std::string server;
  CLI::App parser(
      "Moves everything that a memory server holds of a running program to its other servers, and ends when the server "
      "is not used any more.",
      "farheap remove-server");
  parser.add_option("PID", pid, "the process that `farheap run` became")->required();
  parser.add_option("HOST:PORT", server, "a server of its far tier tcp:")->required();
  int exit_code = 0;
  if (!parse(parser, std::move(arguments), exit_code)) return exit_code;
  return remove_server(pid, server);
}

int start_stats(std::vector<std::string> arguments) {
  std::string pid;
  bool json = false;
  CLI::App parser("Shows the counters of a running program and of the programs that it started.", "farheap stats");
  parser.add_option("PID", pid, "the process that `farheap run` became")->required();
  parser.add_flag("--json", json, "for machines");
  int exit_code = 0;
  if (!parse(parser, std::move(arguments), exit_code)) return exit_code;
  return stats(pid, json);
}

int start_top(std::vector<std::string> arguments) {
  top_options chosen;
  CLI::App parser("Shows the programs under `farheap run`, live: the processes of all jobs of this user.",
                  "farheap top");
  parser.add_option("PID", chosen.pids, "only the jobs of these processes");
  parser.add_option("--interval", chosen.interval_s, "seconds between updates; default: 1")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0));
  parser.add_flag("--once", chosen.once, "print one interval, and exit");
  parser.add_flag("--json", chosen.json, "the same, for machines");
  parser.footer("Keys: q quits; m, l, f, p sort by misses, local memory, far memory, process number.");
  int exit_code = 0;
  if (!parse(parser, std::move(arguments), exit_code)) return exit_code;
  return top(chosen);
}

int start_metrics(std::vector<std::string> arguments) {
  metrics_options chosen;
  CLI::App parser("Shows the counters of all running programs in the text format of Prometheus.", "farheap metrics");
  parser
      .add_option("--listen", chosen.listen,
                  "serve them at http://ADDR:PORT/metrics until this is ended; default: print them once")
      ->type_name("ADDR:PORT");
  parser
      .add_option("--token-file", chosen.token_file,
                  "readers of the port must know the token in this file of mode 0600; required beyond loopback")
      ->type_name("FILE");
  parser.footer("Example: farheap metrics --listen 127.0.0.1:9465");
  int exit_code = 0;
  if (!parse(parser, std::move(arguments), exit_code)) return exit_code;
  return metrics(chosen);
}

int start_doctor(std::vector<std::string> arguments) {
  bool json = false;
  CLI::App parser(
      "Reports which features this machine supports, and how to enable the others. Exits with 0 if `farheap run` "
      "works.",
      "farheap doctor");
  parser.add_flag("--json", json, "for machines");
  int exit_code = 0;
  if (!parse(parser, std::move(arguments), exit_code)) return exit_code;
  return doctor(json);
}

int start_report(std::vector<std::string> arguments) {
  std::string dir;
  bool json = false;
  CLI::App parser("Writes the reports of a traced run again: summary.txt, stacks.folded and report.html in DIR.",
                  "farheap report");
  parser.add_option("DIR", dir, "where `farheap trace` wrote its files misses-PID.trace")->required();
  parser.add_flag("--json", json, "print the findings for machines, and write nothing");
  int exit_code = 0;
  if (!parse(parser, std::move(arguments), exit_code)) return exit_code;
  return trace_report(dir, json);
}

constexpr command commands[] = {
    {"run", "run a program in less local memory than it uses", start_run},
    {"trace", "run a program and record where it misses", start_trace},
    {"tune", "find the size of objects with which a program of -ffar-objects is fastest", start_tune},
    {"resize", "change the budget of a running program", start_resize},
    {"add-server", "add a memory server to a running program", start_add_server},
    {"remove-server", "move what a memory server holds of a running program elsewhere", start_remove_server},
    {"stats", "show the counters of a running program", start_stats},
    {"top", "show the running programs, live", start_top},
    {"metrics", "show the counters of all running programs, for Prometheus", start_metrics},
    {"report", "write the reports of a traced run again", start_report},
    {"doctor", "report which features this machine supports, and how to enable the others", start_doctor},
};

void print_help() {
  fmt::print("farheap {}: more memory than the machine has to spare\n\nUsage: farheap COMMAND [OPTIONS]\n\n",
             FARHEAP_VERSION);
  for (const command& known : commands) fmt::print("  {:<13} {}\n", known.name, known.summary);
  fmt::print("  {:<13} {}\n\n", "help", "show this text, or the options of one command: farheap help run");
  fmt::print("Example: farheap run --local 2G -- python3 analysis.py\n");
}

int start(std::vector<std::string> arguments) {
  std::string names;
  for (const command& known : commands) names += std::string(known.name) + ", ";
  if (arguments.empty()) return fail(exit_usage, "no command is given; the commands are " + names + "help");
  std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (name == "--version" || name == "version") {
    fmt::print("farheap {}\n", FARHEAP_VERSION);
    return 0;
  }
  if (name == "help" || name == "--help" || name == "-h") {
    if (arguments.empty()) return print_help(), 0;
    name = arguments.front();
    arguments = {"--help"};
  }
  for (const command& known : commands) {
    if (name == known.name) return known.start(std::move(arguments));
  }
  return fail(exit_usage, fmt::format("there is no command '{}'; the commands are {}help", name, names));
}

}  // namespace
}  // namespace far::tools

int main(int argc, char** argv) {
  try {
    return far::tools::start({argv + 1, argv + argc});
  } catch (const std::exception& failure) {
    return far::tools::fail(far::tools::exit_failure, failure.what());
  }
}
