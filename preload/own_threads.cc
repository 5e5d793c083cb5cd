// The functions by which a program counts its threads: the links of /proc/self/task are two, and one for each thread.
// Those of the runtime are left out. Chromium's process that forks all others ends if it is not alone.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "far/detail/api.h"
#include "platform/runtime_thread.h"
#include "preload/next_function.h"

namespace far::preload {
namespace {

using function = int (*)(int, const char*, struct stat*, int);

int true_fstatat(int directory, const char* path, struct stat* about, int flags) {
  return next<"fstatat", function>()(directory, path, about, flags);
}

bool may_be_threads(const char* path) {
  const std::size_t length = std::strlen(path);
  const std::size_t end = length > 0 && path[length - 1] == '/' ? length - 1 : length;
  return end >= 4 && std::memcmp(path + end - 4, "task", 4) == 0;
}

// Takes the threads of the runtime off, if it is about this process's threads. Returns `result`.
int without_own_threads(int result, const char* path, struct stat* about) {
  const unsigned own_threads = platform::runtime_threads();
  if (result != 0 || own_threads == 0 || !S_ISDIR(about->st_mode) || !may_be_threads(path)) return result;
  const int saved_errno = errno;
  struct stat threads{};
  const bool found = true_fstatat(AT_FDCWD, "/proc/self/task", &threads, 0) == 0;
  errno = saved_errno;
  const bool is_ours = found && threads.st_dev == about->st_dev && threads.st_ino == about->st_ino;
  if (is_ours && about->st_nlink > own_threads) about->st_nlink -= own_threads;
  return result;
}

}  // namespace
}  // namespace far::preload

extern "C" {

// `stat64` is `stat` on the machines that we run on.
FAR_API int fstatat(int directory, const char* path, struct stat* about, int flags) noexcept {
  return far::preload::without_own_threads(far::preload::true_fstatat(directory, path, about, flags), path, about);
}
FAR_API int fstatat64(int directory, const char* path, struct stat64* about, int flags) noexcept {
  return fstatat(directory, path, reinterpret_cast<struct stat*>(about), flags);
}
FAR_API int stat(const char* path, struct stat* about) noexcept {
  return fstatat(AT_FDCWD, path, about, 0);
}
FAR_API int stat64(const char* path, struct stat64* about) noexcept {
  return fstatat(AT_FDCWD, path, reinterpret_cast<struct stat*>(about), 0);
}

}  // extern "C"
