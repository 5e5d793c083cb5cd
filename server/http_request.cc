#include "server/http_request.h"

#include <algorithm>
#include <cctype>

namespace far::server {
namespace {

constexpr std::string_view blanks = " \t";

// A line, without the CR that it may end in.
std::string_view next_line(std::string_view* rest) {
  const std::size_t end = rest->find('\n');
  std::string_view line = rest->substr(0, end);
  rest->remove_prefix(end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_named(std::string_view name, std::string_view lower_case) {
  return std::equal(name.begin(), name.end(), lower_case.begin(), lower_case.end(), [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == static_cast<unsigned char>(b);
  });
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

// Where the empty line after the headers begins; npos: it has not come.
std::size_t end_of_head(std::string_view bytes) {
  return std::min(bytes.find("\n\r\n"), bytes.find("\n\n"));
}

}  // namespace

// Strangers send these bytes. They are parsed from the start each time more have come: a request is at most 4 KiB, and
// a parser without a state of its own is easier to get right.
http_request::state parse_http_request(std::string_view bytes, http_request* into) {
  using state = http_request::state;
  const std::size_t end = end_of_head(bytes);
  if (end == bytes.npos) return state::incomplete;
  std::string_view rest = bytes.substr(0, end + 1);
  const std::string_view first = next_line(&rest);
  const std::size_t path_at = first.find(' ');
  const std::size_t version_at = first.rfind(' ');
  if (path_at == first.npos || version_at == path_at) return state::malformed;
  if (!first.substr(version_at + 1).starts_with("HTTP/1.")) return state::malformed;
  into->method = first.substr(0, path_at);
  const std::string_view target = first.substr(path_at + 1, version_at - path_at - 1);
  into->path = target.substr(0, target.find('?'));
  while (!rest.empty()) {
    const std::string_view line = next_line(&rest);
    const std::size_t colon = line.find(':');
    if (colon == line.npos) return state::malformed;
    if (is_named(line.substr(0, colon), "authorization")) into->authorization = trimmed(line.substr(colon + 1));
  }
  return state::complete;
}

}  // namespace far::server
