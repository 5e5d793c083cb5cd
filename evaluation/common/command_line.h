// The options of a program, each of which sets a variable. The library for command lines (CLI11) is a header that takes
// the compiler longer than most programs here: only command_line.cc includes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace evaluation {

class command_line {
 public:
  explicit command_line(const std::string& description);
  ~command_line();
  command_line(command_line&&) noexcept;

  // Options that set `into`, and whose default is what it is now. Value: std::uint16_t, unsigned, std::size_t or
  // double.
  template <typename Value>
  void add_number(const std::string& name, Value& into, const std::string& description,
                  std::type_identity_t<Value> least, std::type_identity_t<Value> most);
  // In bytes, or such as 64M; at least 1.
  void add_size(const std::string& name, std::size_t& into, const std::string& description, std::size_t most);
  void add_text(const std::string& name, std::string& into, const std::string& description);
  void add_choice(const std::string& name, std::string& into, const std::string& description,
                  const std::vector<std::string>& choices);
  void add_seed(std::uint64_t& into, const std::string& description);
  void add_flag(const std::string& name, bool& into, const std::string& description);

  // The option `name` goes with none of the others.
  void exclude(const std::string& name, const std::vector<std::string>& others);

  // Sets the variables. The exit status where the program ends with that: help was wanted, or an option is wrong, which
  // has been said.
  [[nodiscard]] std::optional<int> parse(int count, const char* const* arguments);

 private:
  struct parser;
  std::unique_ptr<parser> parser_;
};

}  // namespace evaluation
