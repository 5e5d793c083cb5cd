// The common part of programs on containers (containers.h): --local and --far, --json, phases, and messages to people.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/containers.h"
#include "apps/phases.h"

namespace apps {

// Adds --local and --far to a parser, where there is a far tier.
void declare_memory(CLI::App& parser, memory::runtime_options& into);

class program {
 public:
  // Does the work and returns what it found. Phases called "generate" and "verify" are not part of its time.
  using work = std::function<nlohmann::ordered_json(memory::runtime& memory, phases& timed)>;

  program(std::string name, std::string description);

  template <typename Value>
  CLI::Option* add_option(const std::string& names, Value& into, const std::string& description) {
    return parser_.add_option(names, into, description)->capture_default_str();
  }

  // The exit status. Every failure is told on standard error.
  [[nodiscard]] int run(int count, const char* const* arguments, const work& body);

 private:
  void print(const nlohmann::ordered_json& results, const nlohmann::ordered_json& far, const phases& timed) const;

  std::string name_;
  CLI::App parser_;
  memory::runtime_options chosen_;
  bool json_ = false;
};

}  // namespace apps
