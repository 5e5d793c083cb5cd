// The words of a command line, and its numbers, read as memcached reads them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cached {

// Words between spaces. Those beyond the longest command count, but are not kept.
struct command_line {
  static constexpr std::size_t kept = 8;

  // Cuts a line up: spaces become NULs. Requires a NUL after the line.
  explicit command_line(char* line);

  [[nodiscard]] std::string_view word(std::size_t i) const { return i < count && i < kept ? words[i] : ""; }
  [[nodiscard]] bool ends_with_noreply() const { return count >= 2 && count <= kept && words[count - 1] == "noreply"; }

  std::array<std::string_view, kept> words;
  std::size_t count = 0;
};

// The number that a text ended by a NUL begins with, in decimal; white space may stand around it. False, and 0, if
// there is none, other text touches it, or it is out of range.
bool parse(const char* text, std::uint64_t& number);
// A number that fits into 64 bits is cut to 32.
bool parse(const char* text, std::uint32_t& number);
bool parse(const char* text, std::int32_t& number);

}  // namespace cached
