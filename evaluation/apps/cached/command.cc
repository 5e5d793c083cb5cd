#include "command.h"

#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace cached {
namespace {

bool ends_well(const char* text, const char* end) {
  return errno != ERANGE && end != text && (*end == '\0' || std::isspace(static_cast<unsigned char>(*end)) != 0);
}

}  // namespace

command_line::command_line(char* line) {
  while (true) {
    while (*line == ' ') *line++ = '\0';
    if (*line == '\0') return;
    const std::size_t bytes = std::strcspn(line, " ");
    if (count < kept) words[count] = {line, bytes};
    ++count;
    line += bytes;
  }
}

bool parse(const char* text, std::uint64_t& number) {
  number = 0;
  errno = 0;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (!ends_well(text, end)) return false;
  // strtoull() takes "-1" for the largest number.
  if (value > LLONG_MAX && std::memchr(text, '-', static_cast<std::size_t>(end - text)) != nullptr) return false;
  number = value;
  return true;
}

bool parse(const char* text, std::uint32_t& number) {
  std::uint64_t wide = 0;
  const bool good = parse(text, wide);
  number = static_cast<std::uint32_t>(wide);
  return good;
}

bool parse(const char* text, std::int32_t& number) {
  number = 0;
  errno = 0;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (!ends_well(text, end)) return false;
  number = static_cast<std::int32_t>(value);
  return true;
}

}  // namespace cached
