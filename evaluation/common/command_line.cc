#include "common/command_line.h"

#include <CLI/CLI.hpp>

namespace evaluation {

struct command_line::parser {
  explicit parser(const std::string& description) : options(description) {}

  CLI::App options;
};

command_line::command_line(const std::string& description) : parser_(std::make_unique<parser>(description)) {}
command_line::~command_line() = default;
command_line::command_line(command_line&&) noexcept = default;

template <typename Value>
void command_line::add_number(const std::string& name, Value& into, const std::string& description,
                              std::type_identity_t<Value> least, std::type_identity_t<Value> most) {
  parser_->options.add_option(name, into, description)->check(CLI::Range(least, most))->capture_default_str();
}

template void command_line::add_number(const std::string&, std::uint16_t&, const std::string&, std::uint16_t,
                                       std::uint16_t);
template void command_line::add_number(const std::string&, unsigned&, const std::string&, unsigned, unsigned);
template void command_line::add_number(const std::string&, std::size_t&, const std::string&, std::size_t, std::size_t);
template void command_line::add_number(const std::string&, double&, const std::string&, double, double);

void command_line::add_size(const std::string& name, std::size_t& into, const std::string& description,
                            std::size_t most) {
  const std::size_t mebibytes = into >> 20;
  parser_->options.add_option(name, into, description)
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{1}, most))
      ->default_str(mebibytes << 20 == into ? std::to_string(mebibytes) + "M" : std::to_string(into));
}

void command_line::add_text(const std::string& name, std::string& into, const std::string& description) {
  parser_->options.add_option(name, into, description)->capture_default_str();
}

void command_line::add_choice(const std::string& name, std::string& into, const std::string& description,
                              const std::vector<std::string>& choices) {
  parser_->options.add_option(name, into, description)->check(CLI::IsMember(choices))->capture_default_str();
}

void command_line::add_seed(std::uint64_t& into, const std::string& description) {
  parser_->options.add_option("--seed", into, description)->capture_default_str();
}

void command_line::add_flag(const std::string& name, bool& into, const std::string& description) {
  parser_->options.add_flag(name, into, description);
}

void command_line::exclude(const std::string& name, const std::vector<std::string>& others) {
  for (const std::string& other : others) {
    parser_->options.get_option(name)->excludes(parser_->options.get_option(other));
  }
}

std::optional<int> command_line::parse(int count, const char* const* arguments) {
  try {
    parser_->options.parse(count, arguments);
    return std::nullopt;
  } catch (const CLI::ParseError& said) {
    return parser_->options.exit(said);
  }
}

}  // namespace evaluation
