#include "apps/program.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>

#include "apps/far_statistics.h"

namespace apps {

void declare_memory([[maybe_unused]] CLI::App& parser, [[maybe_unused]] memory::runtime_options& into) {
  into.local_bytes = std::size_t{64} << 20;
#ifndef APP_ON_STD
  parser.add_option("--local", into.local_bytes, "local memory for containers, such as 64M; at least 16M")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("64M");
  parser.add_option("--far", into.far, "the far tier, as for `farheap run`")->capture_default_str();
#endif
}

program::program(std::string name, std::string description)
    : name_(std::move(name)),
      parser_(description + (is_far ? " On far containers." : " On the standard library's containers.")) {
  declare_memory(parser_, chosen_);
  parser_.add_flag("--json", json_, "one JSON object");
}

int program::run(int count, const char* const* arguments, const work& body) try {
  CLI11_PARSE(parser_, count, arguments);
  memory::runtime memory(chosen_);
  phases timed;
  const nlohmann::ordered_json results = body(memory, timed);
  print(results, statistics_of(memory), timed);
  return 0;
} catch (const std::bad_alloc&) {
  fmt::print(stderr, "{}: not enough memory; choose less data (--help tells how)\n", name_);
  return 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}: {}\n", name_, error.what());
  return 1;
}

void program::print(const nlohmann::ordered_json& results, const nlohmann::ordered_json& far,
                    const phases& timed) const {
  nlohmann::ordered_json seconds_of = nlohmann::ordered_json::object();
  double seconds = 0;
  for (const phase& one : timed.all()) {
    seconds_of[one.name] = seconds_of.value(one.name, 0.0) + one.seconds;
    if (one.name != "generate" && one.name != "verify") seconds += one.seconds;
  }
  if (json_) {
    const nlohmann::ordered_json report = {{"app", name_},       {"containers", is_far ? "far" : "std"},
                                           {"seconds", seconds}, {"phases", seconds_of},
                                           {"results", results}, {"far", far}};
    fmt::print("{}\n", report.dump());
    return;
  }
  for (const auto& [phase, taken] : seconds_of.items()) fmt::print("{:<16}{:9.3f} s\n", phase, taken.get<double>());
  for (const auto& [name, found] : results.items()) fmt::print("{}: {}\n", name, found.dump());
  if (!far.is_null()) fmt::print("far memory: {}\n", far.dump());
}

}  // namespace apps
