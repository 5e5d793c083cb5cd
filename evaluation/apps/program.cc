#include "apps/program.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>

#include "apps/far_statistics.h"

namespace apps {

program::program(std::string name, const std::string& description)
    : name_(std::move(name)),
      options_(description + (is_far ? " On far containers." : " On the standard library's containers.")) {
  chosen_.local_bytes = std::size_t{64} << 20;
#ifndef APP_ON_STD
  options_.add_size("--local", chosen_.local_bytes, "local memory for containers, such as 64M; at least 16M",
                    std::size_t{1} << 48);
  options_.add_text("--far", chosen_.far, "the far tier, as for `farheap run`");
#endif
  options_.add_flag("--json", json_, "one JSON object");
}

int program::run(int count, const char* const* arguments, const work& body) try {
  if (const auto status = options_.parse(count, arguments)) return *status;
  memory::runtime memory(chosen_);
  phases timed;
  const evaluation::json results = body(memory, timed);
  print(results, statistics_of(memory), timed);
  return 0;
} catch (const std::bad_alloc&) {
  fmt::print(stderr, "{}: not enough memory; choose less data (--help tells how)\n", name_);
  return 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}: {}\n", name_, error.what());
  return 1;
}

void program::print(const evaluation::json& results, const evaluation::json& far, const phases& timed) const {
  evaluation::json seconds_of = evaluation::json::object();
  evaluation::json cpu_seconds_of = seconds_of;
  double seconds = 0;
  double cpu_seconds = 0;
  for (const phase& one : timed.all()) {
    seconds_of[one.name] = seconds_of.value(one.name, 0.0) + one.seconds;
    if (one.name == "generate" || one.name == "verify") continue;
    seconds += one.seconds;
    cpu_seconds += one.cpu_seconds;
    cpu_seconds_of[one.name] = cpu_seconds_of.value(one.name, 0.0) + one.cpu_seconds;
  }
  if (json_) {
    const evaluation::json report = {{"app", name_},         {"containers", is_far ? "far" : "std"},
                                     {"seconds", seconds},   {"cpu_seconds", cpu_seconds},
                                     {"phases", seconds_of}, {"cpu_phases", cpu_seconds_of},
                                     {"results", results},   {"far", far}};
    fmt::print("{}\n", report.dump());
    return;
  }
  for (const auto& [phase, taken] : seconds_of.items()) fmt::print("{:<16}{:9.3f} s\n", phase, taken.get<double>());
  for (const auto& [name, found] : results.items()) fmt::print("{}: {}\n", name, found.dump());
  if (!far.is_null()) fmt::print("far memory: {}\n", far.dump());
}

}  // namespace apps
