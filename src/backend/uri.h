// The name of a far tier, as users write it: SCHEME:REST?KEY=VALUE&KEY=VALUE.
//
// The options begin at the last '?', so a path that holds a '?' itself is written with one more at its end.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace far::backend {

class uri {
 public:
  // Splits `text`. Errors: no scheme, an option without '=' or without a value, an option given twice.
  [[nodiscard]] static result<uri> parse(std::string_view text);

  // As written by the user: for messages.
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::string& scheme() const { return scheme_; }
  // The text between "SCHEME:" and the options: a path, a list of hosts, or nothing.
  [[nodiscard]] const std::string& rest() const { return rest_; }

  // Fails unless every option is one of `allowed`; the error lists them.
  [[nodiscard]] result<void> allow_options(std::initializer_list<std::string_view> allowed) const;

  // The value of option `key`, or nothing when it is not given. Errors name the far tier, the option and a right value.
  [[nodiscard]] result<std::optional<std::uint64_t>> size_bytes(std::string_view key) const;
  [[nodiscard]] result<std::optional<std::uint64_t>> duration_ns(std::string_view key) const;
  // A decimal number above zero, such as 25 or 0.5.
  [[nodiscard]] result<std::optional<double>> positive_number(std::string_view key) const;
  // As it stands there.
  [[nodiscard]] std::optional<std::string> text_of(std::string_view key) const;
  // 0 or 1.
  [[nodiscard]] result<std::optional<bool>> flag(std::string_view key) const;
  [[nodiscard]] result<std::optional<std::uint64_t>> whole_number(std::string_view key, std::uint64_t least,
                                                                  std::uint64_t most) const;
  [[nodiscard]] std::optional<std::string> text_value(std::string_view key) const;
  // The file that option `key` names, from the root: the program may go to another directory, and read it again there.
  [[nodiscard]] std::optional<std::string> file(std::string_view key) const;
  // The name with all files of options so written, and the path of file: or shm:, for processes in other directories.
  [[nodiscard]] std::string text_from_root() const;

 private:
  struct option {
    std::string key;
    std::string value;
  };

  uri() = default;
  [[nodiscard]] result<void> parse_options(std::string_view options);
  [[nodiscard]] const option* find(std::string_view key) const;
  [[nodiscard]] bool is_path() const;
  [[nodiscard]] far::error wrong_value(const option& wrong, std::string_view why) const;

  std::string text_;
  std::string scheme_;
  std::string rest_;
  std::vector<option> options_;
};

}  // namespace far::backend
