#include "preload/limits_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/quiet_write.h"
#include "preload/in_runtime.h"
#include "preload/memory_file.h"
#include "preload/resource_limits.h"

namespace far::preload {
namespace {

constexpr std::string_view file_name = "limits";
constexpr std::size_t most_bytes = 4096;

// A row as the kernel writes it.
int print_row(char* to, std::size_t room, const char* name, const rlimit& limit) {
  const auto print = [](char(&text)[24], rlim_t value) {
    if (value == RLIM_INFINITY) return std::snprintf(text, sizeof text, "unlimited");
    return std::snprintf(text, sizeof text, "%lu", value);
  };
  char soft[24];
  char hard[24];
  print(soft, limit.rlim_cur);
  print(hard, limit.rlim_max);
  return std::snprintf(to, room, "%-25s %-20s %-20s %-10s\n", name, soft, hard, "bytes");
}

// The limit that a row is about, if the program has one of its own.
std::optional<rlimit> program_limit_of(std::string_view row, const char** name) {
  constexpr const char* address_space = "Max address space";
  constexpr const char* data_size = "Max data size";
  *name = row.starts_with(address_space) ? address_space : data_size;
  if (!row.starts_with(*name)) return std::nullopt;
  return limit_in_effect(*name == address_space ? RLIMIT_AS : RLIMIT_DATA);
}

std::size_t with_program_limits(std::string_view text, char (&to)[most_bytes]) {
  std::size_t length = 0;
  while (!text.empty()) {
    const std::string_view row = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    text.remove_prefix(row.size());
    const char* name = nullptr;
    const std::optional<rlimit> limit = program_limit_of(row, &name);
    const std::size_t room = most_bytes - length;
    if (limit) {
      length += std::min(room, static_cast<std::size_t>(print_row(to + length, room, name, *limit)));
    } else {
      length += row.copy(to + length, room);
    }
  }
  return length;
}

// Requires: a section of the runtime.
void replace(int descriptor) {
  char text[most_bytes];
  const long bytes = syscall(SYS_pread64, descriptor, text, sizeof text, 0L);
  if (bytes <= 0) return;
  char changed[most_bytes];
  const std::size_t length = with_program_limits({text, static_cast<std::size_t>(bytes)}, changed);
  const long copy = syscall(SYS_memfd_create, "limits", MFD_CLOEXEC);
  if (copy < 0) return;
  const long flags = syscall(SYS_fcntl, descriptor, F_GETFD);
  const int file = static_cast<int>(copy);
  if (write_quietly(file, changed, length) == static_cast<ssize_t>(length) && lseek(file, 0, SEEK_SET) == 0) {
    syscall(SYS_dup3, copy, descriptor, (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
  }
  syscall(SYS_close, copy);
}

}  // namespace

void show_program_limits(int descriptor, const char* path) noexcept {
  if (descriptor < 0 || !std::string_view(path).ends_with(file_name)) return;
  const int saved_errno = errno;
  if (limits_differ()) {
    in_runtime([=] {
      if (is_own_process_file(descriptor, file_name.data())) replace(descriptor);
    });
  }
  errno = saved_errno;
}

}  // namespace far::preload
