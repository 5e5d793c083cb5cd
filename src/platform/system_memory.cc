#include "platform/system_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "platform/kept_files.h"

namespace far::platform {
namespace {

// The files of one cgroup version, for the same figures.
struct cgroup_files {
  const char* limit;
  const char* soft_limit;  // above it the kernel slows the cgroup down; null: there is none
  const char* usage;
  const char* inactive_key;  // in memory.stat: page cache that the kernel gives up first
  const char* events;
  const char* failures_key;
};
constexpr cgroup_files version_1{"memory.limit_in_bytes", nullptr,    "memory.usage_in_bytes", "total_inactive_file",
                                 "memory.oom_control",    "oom_kill "};
constexpr cgroup_files version_2{"memory.max",    "memory.high",   "memory.current",
                                 "inactive_file", "memory.events", "oom "};

// Where one cgroup hierarchy is mounted, and which of its folders is the mount's root.
struct hierarchy {
  std::string mount_point;
  std::string mount_root;
  std::string path;  // of this process
  cgroup_files files;
};

// Those of the kernel itself are looked at beside the program, up to dozens of times a second.
std::optional<std::string> read_whole(const std::string& path) {
  if (path.starts_with("/proc/") || path.starts_with("/sys/")) return read_whole_kept(path);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::string text;
  char part[4096];
  ssize_t got = 0;
  while ((got = read(file, part, sizeof part)) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) text.append(part, static_cast<std::size_t>(got));
  }
  const int failure = errno;
  close(file);
  errno = failure;
  if (got < 0) return std::nullopt;
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
  }
  return parts;
}

// The number that starts `text`, after blanks. "max" and the like have none.
std::optional<std::uint64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{}) return std::nullopt;
  return value;
}

// The number on the line of `text` that starts with `key`.
std::optional<std::uint64_t> keyed_number(std::string_view text, std::string_view key) {
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with(key)) return leading_number(line.substr(key.size()));
  }
  return std::nullopt;
}

// mountinfo writes blanks and backslashes as \ooo.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, value, 8).ptr == text.data() + i + 4) {
      out.push_back(static_cast<char>(value));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

bool has_word(std::string_view list, std::string_view word) {
  const std::vector<std::string_view> words = split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Fills in where each hierarchy of `found` is mounted; those that are not mounted keep an empty mount point.
void find_mounts(std::string_view mountinfo, std::vector<hierarchy>& found) {
  for (const std::string_view line : split(mountinfo, '\n')) {
    const std::size_t dash = line.find(" - ");
    const std::vector<std::string_view> head = split(line.substr(0, dash), ' ');
    if (dash == std::string_view::npos || head.size() < 5) continue;
    const std::vector<std::string_view> tail = split(line.substr(dash + 3), ' ');
    if (tail.size() < 3) continue;
    for (hierarchy& candidate : found) {
      const bool second = candidate.files.limit == version_2.limit;
      const bool matches = second ? tail[0] == "cgroup2" : tail[0] == "cgroup" && has_word(tail[2], "memory");
      if (!matches || !candidate.mount_point.empty()) continue;
      candidate.mount_root = unescape(head[3]);
      candidate.mount_point = unescape(head[4]);
    }
  }
}

// The hierarchies that limit memory, from /proc/self/cgroup: lines "number:controllers:path".
std::vector<hierarchy> find_hierarchies(std::string_view cgroups) {
  std::vector<hierarchy> found;
  for (const std::string_view line : split(cgroups, '\n')) {
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty() && line.starts_with("0:")) found.push_back({"", "", path, version_2});
    if (has_word(controllers, "memory")) found.push_back({"", "", path, version_1});
  }
  return found;
}

// The lowest limit that the folder states.
std::optional<std::uint64_t> limit_of(const std::string& folder, const cgroup_files& files) {
  std::optional<std::uint64_t> lowest;
  for (const char* const name : {files.limit, files.soft_limit}) {
    if (name == nullptr) continue;
    const std::optional<std::uint64_t> limit = leading_number(read_whole(folder + "/" + name).value_or(""));
    if (limit && (!lowest || *limit < *lowest)) lowest = limit;
  }
  return lowest;
}

// From a file of pressure stall information: the microseconds in which some thread was stalled.
std::optional<std::uint64_t> stalled_us(const std::string& path) {
  const std::string text = read_whole(path).value_or("");
  const std::size_t some = text.find("some ");
  const std::size_t total = text.find("total=", some);
  if (some == std::string::npos || total == std::string::npos) return std::nullopt;
  return leading_number(std::string_view(text).substr(total + std::strlen("total=")));
}

// Reads the process's own cgroup; the kernel also counts there what a limit further up causes. The pressure of a folder
// that counts no memory is not of a memory cgroup: in the root of version 2 it is the machine's.
void read_pressure(const std::string& folder, const cgroup_files& files, std::optional<std::uint64_t>& stalled,
                   system_memory& memory) {
  if (read_whole(folder + "/" + files.usage)) stalled = stalled_us(folder + "/memory.pressure");
  const std::string events = read_whole(folder + "/" + files.events).value_or("");
  memory.failures += keyed_number(events, files.failures_key).value_or(0);
}

// Lowers `memory` by the limits of one cgroup folder.
void apply_folder(const std::string& folder, const cgroup_files& files, system_memory& memory) {
  const std::optional<std::uint64_t> limit = limit_of(folder, files);
  if (!limit || *limit >= memory.physical_bytes) return;
  memory.cgroup_limit_bytes = std::min(*limit, memory.usable_bytes());
  const std::optional<std::string> usage_text = read_whole(folder + "/" + files.usage);
  const std::uint64_t usage = usage_text ? leading_number(*usage_text).value_or(0) : 0;
  const std::string stat = read_whole(folder + "/memory.stat").value_or("");
  const std::uint64_t inactive = keyed_number(stat, std::string(files.inactive_key) + " ").value_or(0);
  const std::uint64_t held = usage - std::min(usage, inactive);
  memory.available_bytes = std::min(memory.available_bytes, *limit - std::min(*limit, held));
}

// A limit anywhere between the process's cgroup and the mount's root counts.
void apply_hierarchy(const std::string& root, const hierarchy& chosen, std::optional<std::uint64_t>& stalled,
                     system_memory& memory) {
  if (chosen.mount_point.empty()) return;
  std::string below = chosen.path;
  if (chosen.mount_root != "/") {
    // Without a cgroup namespace a container sees the host's path, and a mount that begins inside it.
    const bool inside = below.starts_with(chosen.mount_root);
    below = inside ? below.substr(chosen.mount_root.size()) : "";
  }
  if (below.starts_with("/..")) below.clear();  // the process is outside of what the mount shows
  while (!below.empty() && below.back() == '/') below.pop_back();
  const std::string top = root + chosen.mount_point;
  read_pressure(top + below, chosen.files, stalled, memory);
  while (true) {
    apply_folder(top + below, chosen.files, memory);
    if (below.empty()) return;
    below.resize(below.rfind('/') == std::string::npos ? 0 : below.rfind('/'));
  }
}

}  // namespace

result<system_memory> read_system_memory(const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  const std::optional<std::string> meminfo = read_whole(path);
  if (!meminfo) return error{"cannot read " + path + ": " + std::strerror(errno) + "; mount /proc", errno};
  const std::optional<std::uint64_t> total = keyed_number(*meminfo, "MemTotal:");
  if (!total) return error{path + " does not say MemTotal; is /proc the kernel's?"};
  system_memory memory;
  memory.physical_bytes = *total * kib;
  // Before Linux 3.14 there was no MemAvailable.
  memory.available_bytes = keyed_number(*meminfo, "MemAvailable:").value_or(*total) * kib;
  std::vector<hierarchy> hierarchies = find_hierarchies(read_whole(root + "/proc/self/cgroup").value_or(""));
  find_mounts(read_whole(root + "/proc/self/mountinfo").value_or(""), hierarchies);
  std::optional<std::uint64_t> stalled;
  for (const hierarchy& one : hierarchies) apply_hierarchy(root, one, stalled, memory);
  if (!stalled && !memory.cgroup_limit_bytes) stalled = stalled_us(root + "/proc/pressure/memory");
  memory.stalled_us = stalled.value_or(0);
  return memory;
}

}  // namespace far::platform
