// The common part of programs on containers (containers.h): --local and --far, --json, phases, and messages to people.
#pragma once

#include <functional>
#include <string>

#include "apps/containers.h"
#include "apps/phases.h"
#include "common/command_line.h"
#include "common/json.h"

namespace apps {

class program {
 public:
  // Does the work and returns what it found. Phases called "generate" and "verify" are not part of its time.
  using work = std::function<evaluation::json(memory::runtime& memory, phases& timed)>;

  program(std::string name, const std::string& description);

  // For options of its own.
  [[nodiscard]] evaluation::command_line& options() { return options_; }

  // The exit status. Every failure is told on standard error.
  [[nodiscard]] int run(int count, const char* const* arguments, const work& body);

 private:
  void print(const evaluation::json& results, const evaluation::json& far, const phases& timed) const;

  std::string name_;
  evaluation::command_line options_;
  memory::runtime_options chosen_;
  bool json_ = false;
};

}  // namespace apps
