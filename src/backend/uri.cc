#include "backend/uri.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "base/units.h"

namespace far::backend {
namespace {

bool is_scheme(std::string_view text) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+'; };
  return !text.empty() && text.front() != '+' && std::all_of(text.begin(), text.end(), allowed);
}

std::string quoted(std::string_view text) {
  std::string out = "'";
  out += text;
  out += "'";
  return out;
}

// Links are followed when the file is opened, not now: they are what is replaced.
std::string from_root(const std::string& path) {
  std::array<char, PATH_MAX> directory{};
  if (path.starts_with('/') || getcwd(directory.data(), directory.size()) == nullptr) return path;
  const std::string whole = directory.data();
  return (whole.ends_with('/') ? whole : whole + "/") + path;
}

}  // namespace

result<uri> uri::parse(std::string_view text) {
  uri parsed;
  parsed.text_ = text;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || !is_scheme(text.substr(0, colon))) {
    return error{"far tier " + quoted(text) + " does not begin with a scheme and a colon; write for example file:, " +
                     "file:/mnt/ssd or memory:?latency=5us",
                 EINVAL};
  }
  parsed.scheme_ = text.substr(0, colon);
  std::string_view rest = text.substr(colon + 1);
  const std::size_t question_mark = rest.rfind('?');
  if (question_mark != std::string_view::npos) {
    if (result<void> options = parsed.parse_options(rest.substr(question_mark + 1)); !options) return options.error();
    rest = rest.substr(0, question_mark);
  }
  parsed.rest_ = rest;
  return parsed;
}

result<void> uri::parse_options(std::string_view options) {
  while (!options.empty()) {
    const std::size_t ampersand = options.find('&');
    const std::string_view item = options.substr(0, ampersand);
    options = ampersand == std::string_view::npos ? std::string_view{} : options.substr(ampersand + 1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size()) {
      return error{"far tier " + quoted(text_) + ": option " + quoted(item) + " is not of the form KEY=VALUE", EINVAL};
    }
    if (find(item.substr(0, equals)) != nullptr) {
      return error{"far tier " + quoted(text_) + ": option " + quoted(item.substr(0, equals)) +
                       " is given twice; keep one of them",
                   EINVAL};
    }
    options_.push_back({std::string(item.substr(0, equals)), std::string(item.substr(equals + 1))});
  }
  return {};
}

const uri::option* uri::find(std::string_view key) const {
  for (const option& candidate : options_) {
    if (candidate.key == key) return &candidate;
  }
  return nullptr;
}

result<void> uri::allow_options(std::initializer_list<std::string_view> allowed) const {
  for (const option& given : options_) {
    if (std::find(allowed.begin(), allowed.end(), given.key) != allowed.end()) continue;
    std::string names;
    for (const std::string_view name : allowed) {
      if (!names.empty()) names += ", ";
      names += name;
    }
    return error{
        "far tier " + quoted(text_) + ": unknown option " + quoted(given.key) + "; '" + scheme_ + ":' knows " + names,
        EINVAL};
  }
  return {};
}

error uri::wrong_value(const option& wrong, std::string_view why) const {
  std::string message = "far tier " + quoted(text_) + ": option " + quoted(wrong.key) + ": ";
  message += why;
  return {std::move(message), EINVAL};
}

result<std::optional<std::uint64_t>> uri::size_bytes(std::string_view key) const {
  const option* const given = find(key);
  if (given == nullptr) return std::optional<std::uint64_t>{};
  const result<std::uint64_t> value = parse_size(given->value);
  if (!value) return wrong_value(*given, value.error().message);
  if (value.value() < page_bytes) {
    return wrong_value(*given, quoted(given->value) + " is less than one page (4 KiB); write for example 8G");
  }
  return std::optional<std::uint64_t>{value.value()};
}

result<std::optional<std::uint64_t>> uri::duration_ns(std::string_view key) const {
  const option* const given = find(key);
  if (given == nullptr) return std::optional<std::uint64_t>{};
  const result<std::uint64_t> value = parse_duration_ns(given->value);
  if (!value) return wrong_value(*given, value.error().message);
  return std::optional<std::uint64_t>{value.value()};
}

result<std::optional<double>> uri::positive_number(std::string_view key) const {
  const option* const given = find(key);
  if (given == nullptr) return std::optional<double>{};
  double value = 0;
  const char* const end = given->value.data() + given->value.size();
  const auto [rest, failure] = std::from_chars(given->value.data(), end, value, std::chars_format::fixed);
  // The comparison is written so that "nan" fails it too.
  if (failure != std::errc{} || rest != end || !(value > 0 && value <= 1e9)) {
    return wrong_value(*given, quoted(given->value) + " is not a number above 0; write for example 25 or 0.5");
  }
  return std::optional<double>{value};
}

std::optional<std::string> uri::text_of(std::string_view key) const {
  const option* const given = find(key);
  if (given == nullptr) return std::nullopt;
  return given->value;
}

result<std::optional<bool>> uri::flag(std::string_view key) const {
  const option* const given = find(key);
  if (given == nullptr) return std::optional<bool>{};
  if (given->value == "1") return std::optional<bool>{true};
  if (given->value == "0") return std::optional<bool>{false};
  return wrong_value(*given, quoted(given->value) + " is neither 0 nor 1");
}

result<std::optional<std::uint64_t>> uri::whole_number(std::string_view key, std::uint64_t least,
                                                       std::uint64_t most) const {
  const option* const given = find(key);
  if (given == nullptr) return std::optional<std::uint64_t>{};
  std::uint64_t value = 0;
  const char* const end = given->value.data() + given->value.size();
  const auto [rest, failure] = std::from_chars(given->value.data(), end, value);
  if (failure != std::errc{} || rest != end || value < least || value > most) {
    return wrong_value(*given, quoted(given->value) + " is not a whole number between " + std::to_string(least) +
                                   " and " + std::to_string(most));
  }
  return std::optional<std::uint64_t>{value};
}

std::optional<std::string> uri::text_value(std::string_view key) const {
  const option* const given = find(key);
  if (given == nullptr) return std::nullopt;
  return given->value;
}

std::optional<std::string> uri::file(std::string_view key) const {
  const option* const named = find(key);
  if (named == nullptr) return std::nullopt;
  return from_root(named->value);
}

// Whether what stands before the options is a path: a server of shm: may be named, too.
bool uri::is_path() const {
  if (scheme_ == "file") return !rest_.empty();
  return scheme_ == "shm" && rest_.find('/') != std::string::npos;
}

std::string uri::text_from_root() const {
  std::string text = text_;
  for (const std::string_view key : {"token-file", "password-file", "ca"}) {
    const option* const given = find(key);
    if (given == nullptr || given->value.starts_with('/')) continue;
    const std::string whole = from_root(given->value);
    // A directory's name may hold what has a meaning here.
    if (whole.find_first_of("?&,") != std::string::npos) continue;
    const std::string item = given->key + "=" + given->value;
    std::size_t at = text.rfind('?') + 1;
    while (text.compare(at, item.size(), item) != 0) at = text.find('&', at) + 1;
    text.replace(at, item.size(), given->key + "=" + whole);
  }
  if (!is_path()) return text;
  const std::string path = from_root(rest_);
  const std::size_t scheme_bytes = scheme_.size() + 1;
  const bool ends_with_path = text_.size() == scheme_bytes + rest_.size();
  text.replace(scheme_bytes, rest_.size(), path);
  return ends_with_path && path.find('?') != std::string::npos ? text + "?" : text;
}

}  // namespace far::backend
