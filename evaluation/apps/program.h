// The common part of programs on containers (containers.h): --local and --far, --json, phases, and messages to people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "apps/containers.h"
#include "apps/phases.h"

namespace CLI {
class App;  // its header takes the compiler longer than all the rest of a program
}

namespace apps {

class program {
 public:
  // Does the work and returns what it found. Phases called "generate" and "verify" are not part of its time.
  using work = std::function<nlohmann::ordered_json(memory::runtime& memory, phases& timed)>;

  program(std::string name, const std::string& description);
  ~program();

  // Options that set `into`, and whose default is what it is now. Value: unsigned, std::size_t or double.
  template <typename Value>
  void add_number(const std::string& name, Value& into, const std::string& description,
                  std::type_identity_t<Value> least, std::type_identity_t<Value> most);
  // In bytes, or such as 64M.
  void add_size(const std::string& name, std::size_t& into, const std::string& description, std::size_t most);
  void add_choice(const std::string& name, std::string& into, const std::string& description,
                  const std::vector<std::string>& choices);
  void add_seed(std::uint64_t& into, const std::string& description);

  // The exit status. Every failure is told on standard error.
  [[nodiscard]] int run(int count, const char* const* arguments, const work& body);

 private:
  void print(const nlohmann::ordered_json& results, const nlohmann::ordered_json& far, const phases& timed) const;

  std::string name_;
  std::unique_ptr<CLI::App> parser_;
  memory::runtime_options chosen_;
  bool json_ = false;
};

}  // namespace apps
