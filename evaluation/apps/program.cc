#include "apps/program.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>

#include "apps/far_statistics.h"

namespace apps {

program::program(std::string name, const std::string& description)
    : name_(std::move(name)),
      parser_(std::make_unique<CLI::App>(description +
                                         (is_far ? " On far containers." : " On the standard library's containers."))) {
  chosen_.local_bytes = std::size_t{64} << 20;
#ifndef APP_ON_STD
  parser_->add_option("--local", chosen_.local_bytes, "local memory for containers, such as 64M; at least 16M")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("64M");
  parser_->add_option("--far", chosen_.far, "the far tier, as for `farheap run`")->capture_default_str();
#endif
  parser_->add_flag("--json", json_, "one JSON object");
}

program::~program() = default;

template <typename Value>
void program::add_number(const std::string& name, Value& into, const std::string& description,
                         std::type_identity_t<Value> least, std::type_identity_t<Value> most) {
  parser_->add_option(name, into, description)->check(CLI::Range(least, most))->capture_default_str();
}

template void program::add_number(const std::string&, unsigned&, const std::string&, unsigned, unsigned);
template void program::add_number(const std::string&, std::size_t&, const std::string&, std::size_t, std::size_t);
template void program::add_number(const std::string&, double&, const std::string&, double, double);

void program::add_size(const std::string& name, std::size_t& into, const std::string& description, std::size_t most) {
  parser_->add_option(name, into, description)
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{1}, most))
      ->capture_default_str();
}

void program::add_choice(const std::string& name, std::string& into, const std::string& description,
                         const std::vector<std::string>& choices) {
  parser_->add_option(name, into, description)->check(CLI::IsMember(choices))->capture_default_str();
}

void program::add_seed(std::uint64_t& into, const std::string& description) {
  parser_->add_option("--seed", into, description)->capture_default_str();
}

int program::run(int count, const char* const* arguments, const work& body) try {
  CLI11_PARSE(*parser_, count, arguments);
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
  nlohmann::ordered_json cpu_seconds_of = seconds_of;
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
    const nlohmann::ordered_json report = {{"app", name_},         {"containers", is_far ? "far" : "std"},
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
