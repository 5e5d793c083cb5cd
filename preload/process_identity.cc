#include "preload/process_identity.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "preload/small_file.h"

namespace far::preload {
namespace {

// From a `stat` of /proc.
std::uint64_t start_time_in(const char* path) {
  char text[1024];
  read_text(path, text);
  const char* at = std::strrchr(text, ')');  // the name may hold anything
  if (at == nullptr || at[1] == 0 || at[2] == 'Z' || at[2] == 'X') return 0;
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at + 1, nullptr, 10);
}

// As `children` of /proc lists them: those that one thread has started.
bool has_living_children(const char* thread) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%.20s/children", thread);
  char text[4096];
  read_text(path, text);
  char* at = text;
  while (true) {
    char* end = nullptr;
    const long child = std::strtol(at, &end, 10);
    if (end == at) return false;
    if (start_time_of(static_cast<pid_t>(child)) != 0) return true;
    at = end;
  }
}

}  // namespace

std::uint64_t start_time_of(pid_t pid) noexcept {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  return start_time_in(path);
}

std::uint64_t start_time_of_this_process() noexcept {
  return start_time_in("/proc/self/stat");
}

std::uint64_t pid_namespace_of_this_process() noexcept {
  struct stat status{};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

bool has_living_children() noexcept {
  DIR* const threads = opendir("/proc/self/task");
  if (threads == nullptr) return false;
  bool found = false;
  while (const dirent* const thread = found ? nullptr : readdir(threads)) {
    if (thread->d_name[0] != '.') found = has_living_children(thread->d_name);
  }
  closedir(threads);
  return found;
}

}  // namespace far::preload
