#include "trace/profile.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "base/xxh3.h"

namespace far::trace {
namespace {

const char* name_of(pattern_kind kind) {
  switch (kind) {
    case pattern_kind::unknown: return "unknown";
    case pattern_kind::forward: return "forward";
    case pattern_kind::backward: return "backward";
    case pattern_kind::stride: return "stride";
    case pattern_kind::random: return "random";
  }
  return "unknown";
}

// What was edited after the run has other lines than those that missed.
std::string hash_of(const std::string& path, std::filesystem::file_time_type traced) {
  std::error_code failure;
  const auto written = std::filesystem::last_write_time(path, failure);
  if (failure) return "unknown";
  if (written > traced) return "changed";
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return "unknown";
  return fmt::format("{:016x}", fastest_xxh3().hash_64(text.data(), text.size()));
}

}  // namespace

std::string profile_text(const report& analysis, std::filesystem::file_time_type traced) {
  std::map<std::string, std::vector<const access_line*>> sources;
  for (const std::string& unit : analysis.units) sources[unit];
  std::uint64_t misses = 0;
  for (const access_line& access : analysis.accesses) {
    sources[access.file].push_back(&access);
    misses += access.misses;
  }
  std::string text = fmt::format("farheap profile 1\nmisses {}\n", misses);
  for (const auto& [path, accesses] : sources) {
    if (path.find('\n') != std::string::npos) continue;
    text += fmt::format("source {} {}\n", hash_of(path, traced), path);
    for (const access_line* const access : accesses) {
      text += fmt::format("access {} {} {}\n", access->line, access->misses, name_of(access->seen.kind));
    }
  }
  return text;
}

}  // namespace far::trace
