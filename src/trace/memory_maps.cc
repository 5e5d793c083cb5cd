#include "trace/memory_maps.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <sstream>

namespace far::trace {
namespace {

struct mapping {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
  bool executable = false;
  std::string path;
};

bool parse_line(const std::string& line, mapping& parsed) {
  char rights[5] = {};
  int consumed = 0;
  if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %*s %n", &parsed.first, &parsed.end,
                  rights, &parsed.offset, &consumed) < 4 ||
      consumed == 0 || parsed.end <= parsed.first) {
    return false;
  }
  parsed.executable = rights[2] == 'x';
  parsed.path = line.substr(std::min(line.size(), static_cast<std::size_t>(consumed)));
  return !parsed.path.empty() && (parsed.path.front() == '/' || parsed.path == "[vdso]");
}

// A module is the run of mappings of one file. Parts without code are needed to find where the module begins, so
// modules without any code are dropped only at the end.
std::vector<module_range> parse_text(const std::string& text) {
  std::vector<module_range> modules;
  std::vector<bool> has_code;
  std::istringstream lines(text);
  std::uint64_t end = 0;
  for (std::string line; std::getline(lines, line);) {
    mapping one;
    if (!parse_line(line, one) || one.first < end) continue;  // the kernel lists them by address
    end = one.end;
    // Offset 0 again: the same file, loaded a second time.
    if (modules.empty() || modules.back().path != one.path || one.offset == 0) {
      modules.push_back({one.first, one.end, one.path, false});
      has_code.push_back(false);
    }
    modules.back().end = one.end;
    if (one.executable) has_code.back() = true;
  }
  std::vector<module_range> kept;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (has_code[i]) kept.push_back(modules[i]);
  }
  return kept;
}

bool overlap(const module_range& a, const module_range& b) {
  return a.first < b.end && b.first < a.end;
}

}  // namespace

std::vector<module_range> parse_maps(const std::vector<std::string>& texts) {
  static const std::string deleted = " (deleted)";
  std::vector<module_range> all;
  for (auto text = texts.rbegin(); text != texts.rend(); ++text) {
    for (module_range& found : parse_text(*text)) {
      if (std::any_of(all.begin(), all.end(), [&](const module_range& known) { return overlap(known, found); })) {
        continue;
      }
      if (found.path.ends_with(deleted)) {
        found.deleted = true;
        found.path.resize(found.path.size() - deleted.size());
      }
      all.push_back(std::move(found));
    }
  }
  std::sort(all.begin(), all.end(), [](const module_range& a, const module_range& b) { return a.first < b.first; });
  return all;
}

const module_range* find_module(const std::vector<module_range>& modules, std::uint64_t address) {
  const auto after = std::upper_bound(modules.begin(), modules.end(), address,
                                      [](std::uint64_t wanted, const module_range& one) { return wanted < one.first; });
  if (after == modules.begin()) return nullptr;
  const module_range& before = *(after - 1);
  return address < before.end ? &before : nullptr;
}

}  // namespace far::trace
