#include "preload/process_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/quiet_write.h"
#include "platform/runtime_thread.h"
#include "platform/thread_identity.h"
#include "preload/in_runtime.h"
#include "preload/memory_file.h"
#include "preload/resource_limits.h"
#include "preload/runtime.h"

namespace far::preload {
namespace {

constexpr std::size_t most_bytes = 8192;

// Writes the text as the program is to read it, which may be longer by a few bytes. Returns its length, or 0 for what
// stays as it is.
using edit = std::size_t (*)(std::string_view text, char (&to)[most_bytes]);

// ---- limits ----

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

// ---- threads ----

// The number of threads in the text of "stat": the twentieth field. The second is the program's name in parentheses,
// which may contain anything.
std::string_view threads_in_stat(std::string_view text) {
  constexpr int fields_behind_name = 18;
  std::size_t space = text.rfind(')');
  for (int i = 0; i < fields_behind_name && space != std::string_view::npos; ++i) space = text.find(' ', space + 1);
  if (space == std::string_view::npos) return {};
  return text.substr(space + 1, text.find(' ', space + 1) - space - 1);
}

std::string_view threads_in_status(std::string_view text) {
  constexpr std::string_view row = "\nThreads:\t";
  const std::size_t at = text.find(row);
  if (at == std::string_view::npos) return {};
  return text.substr(at + row.size(), text.find('\n', at + row.size()) - at - row.size());
}

template <std::string_view (*find)(std::string_view text)>
std::size_t without_own_threads(std::string_view text, char (&to)[most_bytes]) {
  const std::string_view number = find(text);
  const unsigned own_threads = platform::runtime_threads();
  unsigned all = 0;
  std::from_chars(number.data(), number.data() + number.size(), all);
  if (own_threads == 0 || all <= own_threads) return 0;
  const auto before = static_cast<std::size_t>(number.data() - text.data());
  text.copy(to, before);
  char* const end = std::to_chars(to + before, to + most_bytes, all - own_threads).ptr;
  const std::string_view rest = text.substr(before + number.size());
  return static_cast<std::size_t>(end - to) + rest.copy(end, rest.size());
}

// ---- files ----

// Requires: a section of the runtime.
void replace(int descriptor, const char* name, edit change) {
  char text[most_bytes];
  constexpr std::size_t most_read = most_bytes / 2;
  const long bytes = syscall(SYS_pread64, descriptor, text, most_read, 0L);
  if (bytes <= 0 || bytes == static_cast<long>(most_read)) return;  // there may be more of it
  char changed[most_bytes];
  const std::size_t length = change({text, static_cast<std::size_t>(bytes)}, changed);
  const long copy = length > 0 ? syscall(SYS_memfd_create, name, MFD_CLOEXEC) : -1;
  if (copy < 0) return;
  const long flags = syscall(SYS_fcntl, descriptor, F_GETFD);
  const int file = static_cast<int>(copy);
  if (write_quietly(file, changed, length) == static_cast<ssize_t>(length) && lseek(file, 0, SEEK_SET) == 0) {
    syscall(SYS_dup3, copy, descriptor, (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
  }
  syscall(SYS_close, copy);
}

void show(int descriptor, const char* path, const char* name, edit change) {
  if (!std::string_view(path).ends_with(name)) return;
  on_runtime_stack([=] {  // the program's may be too small for the buffers
    if (!is_own_process_file(descriptor, name)) return;
    platform::wait_for_followers();  // or the kernel would not count yet what we count
    replace(descriptor, name, change);
  });
}

}  // namespace

void show_program_limits(int descriptor, const char* path) noexcept {
  if (descriptor < 0) return;
  const int saved_errno = errno;
  if (limits_differ()) show(descriptor, path, "limits", with_program_limits);
  errno = saved_errno;
}

void show_program_threads(int descriptor, const char* path) noexcept {
  if (descriptor < 0 || platform::runtime_threads() == 0 || has_restricted_itself()) return;
  if (platform::on_runtime_thread()) return;
  const int saved_errno = errno;
  show(descriptor, path, "stat", without_own_threads<threads_in_stat>);
  show(descriptor, path, "status", without_own_threads<threads_in_status>);
  errno = saved_errno;
}

}  // namespace far::preload
