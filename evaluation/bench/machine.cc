// describe_machine(): the facts that decide whether two sets of figures may be compared.
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <string>

#include "common/json.h"
#include "report.h"

namespace far::bench {

namespace {

// The first line of a file, or an empty string.
std::string first_line(const char* path) {
  FILE* file = fopen(path, "re");
  if (file == nullptr) return {};
  char line[256] = {};
  std::string text = fgets(line, sizeof line, file) != nullptr ? line : "";
  fclose(file);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// The value of the first line of /proc/cpuinfo that names the processor.
std::string processor_name() {
  FILE* file = fopen("/proc/cpuinfo", "re");
  if (file == nullptr) return {};
  char line[256] = {};
  std::string name;
  while (name.empty() && fgets(line, sizeof line, file) != nullptr) {
    const std::string text = line;
    const std::size_t colon = text.find(": ");
    if (text.starts_with("model name") && colon != std::string::npos) name = text.substr(colon + 2);
  }
  fclose(file);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

bool runs_virtualised() {
  FILE* file = fopen("/proc/cpuinfo", "re");
  if (file == nullptr) return false;
  char* line = nullptr;
  size_t capacity = 0;
  bool found = false;
  while (!found && getline(&line, &capacity, file) > 0) {
    const std::string text = line;
    found = text.starts_with("flags") && text.find(" hypervisor") != std::string::npos;
  }
  free(line);
  fclose(file);
  return found;
}

}  // namespace

evaluation::json describe_machine() {
  utsname names{};
  uname(&names);
  double load[1] = {};
  const bool load_known = getloadavg(load, 1) == 1;
  const auto memory_bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  char date[32] = {};
  const time_t now = time(nullptr);
  tm parts{};
  gmtime_r(&now, &parts);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {{"date", date},
          {"kernel", names.release},
          {"architecture", names.machine},
          {"processor", processor_name()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"virtual_machine", runs_virtualised()},
          {"memory_bytes", memory_bytes},
          {"transparent_hugepage", first_line("/sys/kernel/mm/transparent_hugepage/enabled")},
          {"load_average_1min", load_known ? load[0] : -1.0},
          {"user_is_root", geteuid() == 0}};
}

}  // namespace far::bench
