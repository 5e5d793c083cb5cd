// The functions that start programs. A program that cannot load the runtime runs natively, outside of the budget, and
// one message names it. A process publishes its counts before exec, which would lose them.
//
// All this runs in the child of a vfork, too: it allocates nothing, and touches no memory of the parent but its stack.
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/log.h"
#include "far/detail/api.h"
#include "platform/runtime_thread.h"
#include "preload/native_program.h"
#include "preload/next_function.h"
#include "preload/program_memory.h"
#include "preload/resource_limits.h"
#include "preload/runtime.h"
#include "preload/settings.h"

namespace {

constexpr const char* library_name = "libfarheap-preload.so";

// Whether the new program is to have far memory: with another environment it runs natively on purpose. An environment
// at a bad address, or with such an entry, is the kernel's to refuse.
bool wants_far_memory(char* const* environment) {
  bool preloads = false;
  bool has_budget = false;
  const std::size_t budget_length = std::strlen(far::preload::variable::local_bytes);
  for (; environment != nullptr; ++environment) {
    const std::optional<char*> entry = far::preload::load(environment);
    if (!entry || (*entry != nullptr && !far::preload::is_readable_text(*entry))) return false;
    if (*entry == nullptr) break;
    preloads |= std::strncmp(*entry, "LD_PRELOAD=", 11) == 0 && std::strstr(*entry, library_name) != nullptr;
    has_budget |= std::strncmp(*entry, far::preload::variable::local_bytes, budget_length) == 0;
  }
  return preloads && has_budget;
}

std::uint64_t hash_of(const char* text) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (; *text != 0; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3u;
  return hash;
}

void name_native(const char* path, char* const* environment) {
  if (far::preload::active_pager() == nullptr || far::platform::on_runtime_thread() || path == nullptr) return;
  const int saved_errno = errno;
  if (wants_far_memory(environment)) {
    const char* const why = far::preload::why_native(path);
    if (why != nullptr && far::preload::is_first_to_name(hash_of(path))) {
      far::log_line(far::log_level::info,
                    "'%s' %s: it runs natively, and its memory is not counted in the budget; this message appears once",
                    path, why);
    }
  }
  errno = saved_errno;
}

// The file that execvp(3) finds: its path in `room`, or null.
const char* find_in_path(const char* name, char (&room)[PATH_MAX]) {
  if (name == nullptr || std::strchr(name, '/') != nullptr) return name;
  const char* rest = getenv("PATH");
  if (rest == nullptr) rest = "/bin:/usr/bin";
  const std::size_t name_length = std::strlen(name);
  while (true) {
    const std::size_t length = std::strcspn(rest, ":");
    if (length + 1 + name_length + 1 <= sizeof room) {
      std::memcpy(room, rest, length);
      room[length] = '/';
      std::memcpy(room + length + (length == 0 ? 0 : 1), name, name_length + 1);
      if (access(room, X_OK) == 0) return room;
    }
    if (rest[length] == 0) return nullptr;
    rest += length + 1;
  }
}

// Makes `call`, which returns only if it has failed: then the process stays what it is.
template <typename Call>
int exec(const char* path, char* const* environment, Call call) {
  name_native(path, environment);
  far::preload::tell_before_exec();
  const bool is_limited = far::preload::limits_before_exec();
  const int result = call();
  if (is_limited) far::preload::limits_after_exec();
  return result;
}

void name_native_in_path(const char* name, char* const* environment) {
  const int saved_errno = errno;
  char room[PATH_MAX];
  name_native(find_in_path(name, room), environment);
  errno = saved_errno;
}

using exec_function = int (*)(const char*, char* const*, char* const*);

int next_execve(const char* path, char* const* arguments, char* const* environment) {
  const auto call = far::preload::next<"execve", exec_function>();
  return call(path, arguments, environment);
}

int next_execvpe(const char* name, char* const* arguments, char* const* environment) {
  const auto call = far::preload::next<"execvpe", exec_function>();
  return call(name, arguments, environment);
}

// How many arguments follow `first`, up to and with the null pointer.
std::size_t count_arguments(const char* first, std::va_list rest) {
  std::size_t count = 1;
  for (const char* one = first; one != nullptr; one = va_arg(rest, const char*)) ++count;
  return count;
}

void collect_arguments(const char* first, std::va_list rest, const char** into) {
  for (const char* one = first;; one = va_arg(rest, const char*)) {
    *into++ = one;
    if (one == nullptr) return;
  }
}

}  // namespace

// The arguments behind `first` as an array on the stack of the caller, whose last named parameter `first` is. Leaves
// the va_list `rest` behind the null pointer.
#define FAR_COLLECT_ARGUMENTS(first, rest, collected)                                                     \
  std::va_list rest;                                                                                      \
  va_start(rest, first);                                                                                  \
  const auto collected = static_cast<const char**>(alloca(count_arguments(first, rest) * sizeof(char*))); \
  va_end(rest);                                                                                           \
  va_start(rest, first);                                                                                  \
  collect_arguments(first, rest, collected)

extern "C" {

FAR_API int execve(const char* path, char* const* arguments, char* const* environment) {
  return exec(path, environment, [=] { return next_execve(path, arguments, environment); });
}

FAR_API int execv(const char* path, char* const* arguments) {
  return execve(path, arguments, environ);
}

FAR_API int execvpe(const char* name, char* const* arguments, char* const* environment) {
  name_native_in_path(name, environment);
  return exec(nullptr, environment, [=] { return next_execvpe(name, arguments, environment); });
}

FAR_API int execvp(const char* name, char* const* arguments) {
  return execvpe(name, arguments, environ);
}

FAR_API int execl(const char* path, const char* first, ...) {
  FAR_COLLECT_ARGUMENTS(first, rest, arguments);
  va_end(rest);
  return execve(path, const_cast<char* const*>(arguments), environ);
}

FAR_API int execlp(const char* name, const char* first, ...) {
  FAR_COLLECT_ARGUMENTS(first, rest, arguments);
  va_end(rest);
  return execvpe(name, const_cast<char* const*>(arguments), environ);
}

FAR_API int execle(const char* path, const char* first, ...) {
  FAR_COLLECT_ARGUMENTS(first, rest, arguments);
  char* const* const environment = va_arg(rest, char* const*);
  va_end(rest);
  return execve(path, const_cast<char* const*>(arguments), environment);
}

FAR_API int execveat(int directory, const char* path, char* const* arguments, char* const* environment, int flags) {
  return exec(nullptr, environment,
              [=] { return static_cast<int>(syscall(SYS_execveat, directory, path, arguments, environment, flags)); });
}

FAR_API int fexecve(int file, char* const* arguments, char* const* environment) {
  using function = int (*)(int, char* const*, char* const*);
  const auto call = far::preload::next<"fexecve", function>();
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  return exec(path, environment, [=] { return call(file, arguments, environment); });
}

FAR_API int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                        const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
  const auto call = far::preload::next<"posix_spawn", decltype(&posix_spawn)>();
  name_native(path, environment);
  return call(pid, path, actions, attributes, arguments, environment);
}

FAR_API int posix_spawnp(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions,
                         const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
  const auto call = far::preload::next<"posix_spawnp", decltype(&posix_spawnp)>();
  name_native_in_path(name, environment);
  return call(pid, name, actions, attributes, arguments, environment);
}

}  // extern "C"
