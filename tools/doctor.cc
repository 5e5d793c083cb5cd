#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/file/store_file.h"
#include "base/log.h"
#include "base/units.h"
#include "commands.h"
#include "platform/kernel_features.h"
#include "platform/system_memory.h"
#include "preload/budget.h"
#include "preload/fault_mode_choice.h"
#include "preload/settings.h"
#include "program.h"
#include "run.h"

namespace far::tools {
namespace {

using platform::kernel_features;

// yes: there. fallback: not there, done in another way. no: not there, and `farheap run` cannot work without it.
// note: a figure to know.
enum class status { yes, fallback, no, note };

struct finding {
  std::string group;
  std::string name;
  status found = status::note;
  std::string value;
  std::string advice;  // how to enable or improve it; empty when there is nothing to do
};
using findings = std::vector<finding>;

const char* word(status found) {
  switch (found) {
    case status::yes: return "yes";
    case status::fallback: return "fallback";
    case status::no: return "NO";
    case status::note: return "";
  }
  return "";
}

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

void examine_system(findings& found) {
  utsname system{};
  if (uname(&system) == 0) {
    found.push_back({"system", "kernel", status::note, fmt::format("{} {}", system.sysname, system.release), ""});
    found.push_back({"system", "architecture", status::note, system.machine, ""});
  }
  found.push_back({"system", "processors", status::note, std::to_string(sysconf(_SC_NPROCESSORS_ONLN)), ""});
  const long page = sysconf(_SC_PAGESIZE);
  const bool right = page == static_cast<long>(page_bytes);
  found.push_back({"system", "page size", right ? status::yes : status::no, std::to_string(page),
                   right ? "" : "boot a kernel with 4 KiB pages"});
}

// How userfaultfd was got, or why not.
std::string permission_value(const kernel_features& features) {
  if (features.userfaultfd_through_device && features.userfaultfd_kernel_faults) return "/dev/userfaultfd";
  if (features.userfaultfd_kernel_faults) return "every fault (the system call)";
  if (features.userfaultfd)
    return "only faults of user mode (UFFD_USER_MODE_ONLY): `farheap run` takes --fault-mode inline";
  return std::strerror(features.userfaultfd_error_code);
}

// A feature without a fallback is required: where it is missing, the finding is NO.
void examine_features(findings& found) {
  const kernel_features& features = platform::probe_kernel();
  if (const char* disabled = std::getenv("FARHEAP_DISABLE"); disabled != nullptr && *disabled != 0) {
    found.push_back({"features", "FARHEAP_DISABLE", status::note, disabled, "unset it to use everything"});
  }
  const result<preload::fault_mode_choice> choice = preload::choose_fault_mode(features, std::nullopt);
  const bool both_modes = choice.ok() && features.userfaultfd_kernel_faults;
  found.push_back({"features", "permission",
                   both_modes    ? status::yes
                   : choice.ok() ? status::fallback
                                 : status::no,
                   permission_value(features), both_modes ? "" : platform::known_features()[0].enable});
  const std::string sysctl = first_line("/proc/sys/vm/unprivileged_userfaultfd").value_or("unknown");
  found.push_back({"features", "vm.unprivileged_userfaultfd", status::note, sysctl, ""});
  for (const platform::feature_description& feature : platform::known_features()) {
    if (feature.member == &kernel_features::userfaultfd_through_device) continue;  // "permission" says it
    if (features.*feature.member) {
      found.push_back({"features", feature.name, status::yes, feature.use, ""});
    } else {
      const bool required = feature.fallback == nullptr;
      found.push_back({"features", feature.name, required ? status::no : status::fallback,
                       required ? feature.use : fmt::format("instead: {}", feature.fallback), feature.enable});
    }
  }
}

void note_default_tier(findings& found) {
  const result<platform::system_memory> memory = platform::read_system_memory();
  const result<std::string> uri =
      memory ? default_far_uri(preload::default_budget_bytes(memory.value())) : result<std::string>(memory.error());
  found.push_back({"far tier", "without --far and --local", status::note, uri ? uri.value() : uri.error().message, ""});
}

// Opens a file for real, as a program would: a directory that looks writable may still refuse.
void examine_far_tier(findings& found) {
  note_default_tier(found);
  const std::string directory = backend::default_place_of_files().directory;
  set_log_level(log_level::error);  // its warnings are findings here
  const result<std::unique_ptr<backend::backend>> opened = backend::open(preload::default_far_uri);
  set_log_level(log_level::info);
  if (!opened) {
    found.push_back(
        {"far tier", "file:", status::no, opened.error().message, "set FARHEAP_DIR to a writable directory"});
    return;
  }
  found.push_back({"far tier", "file:", status::yes, opened.value()->describe(), ""});
  const int direct = platform::direct_io_works(directory.c_str());
  found.push_back({"far tier", "O_DIRECT", direct == 1 ? status::yes : status::fallback,
                   direct == 1 ? "past the page cache" : "instead: through the page cache, which takes local memory",
                   direct == 1 ? "" : "set FARHEAP_DIR to a directory on ext4, xfs or btrfs"});
  struct statvfs space{};
  if (statvfs(directory.c_str(), &space) == 0) {
    const std::uint64_t free_bytes = std::uint64_t{space.f_bavail} * space.f_frsize;
    const bool little = free_bytes < gib;
    found.push_back({"far tier", "disk space", status::note,
                     fmt::format("{} free in {}", format_size(free_bytes), directory),
                     little ? "free some, or set FARHEAP_DIR to a larger disk" : ""});
  }
}

std::string limit_text(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : format_size(limit.rlim_cur);
}

// Limits are notes, with a remedy where a large heap would meet them: a small program runs with all of them.
void examine_limits(findings& found) {
  if (const result<platform::system_memory> memory = platform::read_system_memory(); memory.ok()) {
    const platform::system_memory& sizes = memory.value();
    found.push_back(
        {"limits", "memory", status::note,
         fmt::format("{}, {} available", format_size(sizes.physical_bytes), format_size(sizes.available_bytes)), ""});
    found.push_back({"limits", "memory cgroup", status::note,
                     sizes.cgroup_limit_bytes ? format_size(*sizes.cgroup_limit_bytes) : "no limit", ""});
  } else {
    found.push_back({"limits", "memory", status::no, memory.error().message, "mount /proc"});
  }
  const std::string maps = first_line("/proc/sys/vm/max_map_count").value_or("unknown");
  const bool few = std::strtoull(maps.c_str(), nullptr, 10) < 262144;
  found.push_back({"limits", "vm.max_map_count", status::note, maps,
                   few ? "for large heaps: sysctl vm.max_map_count=1048576" : ""});
  const std::string overcommit = first_line("/proc/sys/vm/overcommit_memory").value_or("unknown");
  found.push_back({"limits", "vm.overcommit_memory", status::note, overcommit,
                   overcommit == "2" ? "a far heap larger than memory needs: sysctl vm.overcommit_memory=0" : ""});
  found.push_back({"limits", "RLIMIT_MEMLOCK", status::note, limit_text(RLIMIT_MEMLOCK), ""});
  const std::string space = limit_text(RLIMIT_AS);
  found.push_back({"limits", "RLIMIT_AS", status::note, space,
                   space == "unlimited" ? "" : "the far heap needs address space: ulimit -v unlimited"});
  const std::string huge = first_line("/sys/kernel/mm/transparent_hugepage/enabled").value_or("not in this kernel");
  found.push_back({"limits", "transparent huge pages", status::note, huge, ""});
}

void examine_installation(findings& found) {
  const result<std::string> library = find_preload_library();
  found.push_back({"installation", "runtime", library.ok() ? status::yes : status::no,
                   library.ok() ? library.value() : library.error().message,
                   library.ok() ? "" : "build or install farheap again"});
}

void print_text(const findings& found, bool works) {
  std::string group;
  for (const finding& one : found) {
    if (one.group != group) fmt::print("{}{}\n", group.empty() ? "" : "\n", one.group);
    group = one.group;
    fmt::print("  {:<28} {:<9} {}\n", one.name, word(one.found), one.value);
    if (!one.advice.empty()) fmt::print("  {:<28} {:<9} -> {}\n", "", "", one.advice);
  }
  fmt::print("\n{}\n",
             works ? "`farheap run` works here." : "`farheap run` does not work here: see the lines marked NO.");
}

void print_json(const findings& found, bool works) {
  nlohmann::ordered_json document;
  document["works"] = works;
  document["findings"] = nlohmann::ordered_json::array();
  for (const finding& one : found) {
    static constexpr const char* names[] = {"yes", "fallback", "no", "note"};
    document["findings"].push_back({{"group", one.group},
                                    {"name", one.name},
                                    {"status", names[static_cast<int>(one.found)]},
                                    {"value", one.value},
                                    {"advice", one.advice}});
  }
  // Bytes of the environment that are not UTF-8 are replaced, not thrown about.
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace

int doctor(bool json) {
  findings found;
  examine_system(found);
  examine_features(found);
  examine_far_tier(found);
  examine_limits(found);
  examine_installation(found);
  bool works = true;
  for (const finding& one : found) works = works && one.found != status::no;
  json ? print_json(found, works) : print_text(found, works);
  return works ? 0 : exit_failure;
}

}  // namespace far::tools
