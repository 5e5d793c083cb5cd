// Writes the front of a command in the protocol of Redis: an array of strings.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/check.h"

namespace far::backend {

// Allocates nothing. Stops the process when the room is too small.
class command_writer {
 public:
  explicit command_writer(std::span<char> into) : into_(into) {}

  void begin(std::uint64_t arguments) { head('*', arguments); }

  void text(std::string_view argument) {
    head('$', argument.size());
    put(argument);
    put("\r\n");
  }

  void number(std::uint64_t argument) {
    char digits[20];
    const auto [end, failure] = std::to_chars(digits, digits + sizeof digits, argument);
    FAR_CHECK(failure == std::errc{}, "a number has at most 20 digits");
    text({digits, static_cast<std::size_t>(end - digits)});
  }

  // The argument's bytes, and the end of its line, are sent from elsewhere.
  void announce(std::uint64_t bytes) { head('$', bytes); }

  [[nodiscard]] std::size_t size() const { return used_; }

 private:
  void head(char kind, std::uint64_t number) {
    char line[24];
    line[0] = kind;
    char* end = std::to_chars(line + 1, line + 21, number).ptr;
    *end++ = '\r';
    *end++ = '\n';
    put({line, static_cast<std::size_t>(end - line)});
  }

  void put(std::string_view bytes) {
    FAR_CHECK(used_ + bytes.size() <= into_.size(), "a command fits into its place");
    std::memcpy(into_.data() + used_, bytes.data(), bytes.size());
    used_ += bytes.size();
  }

  const std::span<char> into_;
  std::size_t used_ = 0;
};

}  // namespace far::backend
