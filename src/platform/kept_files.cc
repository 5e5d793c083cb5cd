#include "platform/kept_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/lock_guard.h"
#include "base/spin_lock.h"
#include "platform/own_descriptors.h"
#include "platform/signal_shield.h"

namespace far::platform {
namespace {

// Of a process in nested cgroups: some five for each level, and those of /proc.
constexpr std::size_t most_files = 48;
constexpr std::size_t longest_path = 512;

struct kept_file {
  std::array<char, longest_path> path{};
  int descriptor = -1;
  dev_t device = 0;
  ino_t inode = 0;
};

spin_lock keeping;
std::array<kept_file, most_files> files FAR_GUARDED_BY(keeping);
std::size_t next_replaced FAR_GUARDED_BY(keeping) = 0;

// An open() that fails takes a number as well.
int open_file(const char* path) {
  struct stat about{};
  if (syscall(SYS_newfstatat, AT_FDCWD, path, &about, 0) != 0) return -1;
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
}

// The program may have closed it by a call that nobody saw, and the number may be the program's by now.
bool is_intact(const kept_file& file) {
  struct stat about{};
  return fstat(file.descriptor, &about) == 0 && about.st_dev == file.device && about.st_ino == file.inode;
}

void forget(kept_file& file) {
  if (file.descriptor < 0) return;
  if (is_intact(file)) {
    close_own_descriptor(file.descriptor);
  } else {
    disown_descriptor(file.descriptor);
  }
  file.descriptor = -1;
}

kept_file* find(const char* path) FAR_REQUIRES(keeping) {
  for (kept_file& file : files) {
    if (file.descriptor < 0 || std::strcmp(file.path.data(), path) != 0) continue;
    if (is_intact(file)) return &file;
    disown_descriptor(std::exchange(file.descriptor, -1));
    return nullptr;
  }
  return nullptr;
}

// Takes an open file, if its number is out of the program's way.
kept_file* keep(const char* path, int& descriptor) FAR_REQUIRES(keeping) {
  struct stat about{};
  if (std::strlen(path) >= longest_path || fstat(descriptor, &about) != 0) return nullptr;
  const int low = descriptor;
  descriptor = own_descriptor(descriptor);
  if (descriptor == low) {
    disown_descriptor(descriptor);
    return nullptr;
  }
  kept_file& file = files[next_replaced++ % most_files];
  forget(file);
  std::strcpy(file.path.data(), path);
  file.device = about.st_dev;
  file.inode = about.st_ino;
  file.descriptor = std::exchange(descriptor, -1);
  return &file;
}

}  // namespace

ssize_t read_kept(const char* path, std::span<char> room, off_t offset) noexcept {
  const signal_shield shield;
  const lock_guard guard(keeping);
  if (kept_file* const known = find(path)) {
    const ssize_t got = pread(known->descriptor, room.data(), room.size(), offset);
    if (got >= 0) return got;
    forget(*known);  // of a cgroup that is gone, whose name may be another one's by now
  }
  int descriptor = open_file(path);
  if (descriptor < 0) return -1;
  const kept_file* const kept = keep(path, descriptor);
  const ssize_t got = pread(kept != nullptr ? kept->descriptor : descriptor, room.data(), room.size(), offset);
  const int failure = errno;
  if (descriptor >= 0) close(descriptor);
  errno = failure;
  return got;
}

std::optional<std::string> read_whole_kept(const std::string& path) {
  std::string text;
  std::array<char, 4096> part;
  while (true) {
    const ssize_t got = read_kept(path.c_str(), part, static_cast<off_t>(text.size()));
    if (got < 0 && errno != EINTR) return std::nullopt;
    if (got == 0) return text;
    if (got > 0) text.append(part.data(), static_cast<std::size_t>(got));
  }
}

void close_kept_files_in_child() noexcept {
  keeping.open_in_child();
  const lock_guard guard(keeping);
  for (kept_file& file : files) forget(file);
}

}  // namespace far::platform
