// The functions by which a program counts its threads: the links of /proc/self/task are two, and one for each thread,
// and it lists them. Those of the runtime are left out. Chromium's process that forks all others ends if it is not
// alone. For numbers in other files see process_files.h.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "far/detail/api.h"
#include "platform/runtime_thread.h"
#include "platform/thread_identity.h"
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

// The folder of this process's threads, if this is it. Preserves errno.
std::optional<struct stat> own_threads_in(const struct stat& about) {
  const int saved_errno = errno;
  struct stat threads{};
  const bool found = true_fstatat(AT_FDCWD, "/proc/self/task", &threads, 0) == 0;
  errno = saved_errno;
  if (!found || threads.st_dev != about.st_dev || threads.st_ino != about.st_ino) return std::nullopt;
  return threads;
}

// Takes the threads of the runtime off, if it is about this process's threads. Returns `result`. We count a thread from
// before it starts, the kernel not before it has: so it is asked again when those that are starting have started.
int without_own_threads(int result, const char* path, struct stat* about) {
  if (result != 0 || platform::runtime_threads() == 0 || !S_ISDIR(about->st_mode) || !may_be_threads(path))
    return result;
  if (platform::on_runtime_thread() || !own_threads_in(*about)) return result;
  platform::wait_for_followers();
  const unsigned ours = platform::runtime_threads();
  const std::optional<struct stat> threads = own_threads_in(*about);
  if (threads && threads->st_nlink > ours) about->st_nlink = threads->st_nlink - ours;
  return result;
}

// Whether an entry that was read from a folder is a thread of the runtime's. Other entries cost a comparison.
bool is_own_thread(DIR* folder, const dirent& entry) {
  if (entry.d_name[0] < '1' || entry.d_name[0] > '9' || entry.d_type != DT_DIR) return false;
  pid_t number = 0;
  const char* const end = std::from_chars(entry.d_name, entry.d_name + std::strlen(entry.d_name), number).ptr;
  if (*end != 0 || !platform::follows_identity(number) || platform::on_runtime_thread()) return false;
  struct stat about{};
  return true_fstatat(dirfd(folder), "", &about, AT_EMPTY_PATH) == 0 && own_threads_in(about).has_value();
}

}  // namespace
}  // namespace far::preload

extern "C" {

FAR_API dirent* readdir(DIR* folder) {
  const auto next = far::preload::next<"readdir", dirent* (*)(DIR*)>();
  dirent* entry = next(folder);
  while (entry != nullptr && far::preload::is_own_thread(folder, *entry)) entry = next(folder);
  return entry;
}
FAR_API dirent64* readdir64(DIR* folder) {
  return reinterpret_cast<dirent64*>(readdir(folder));
}

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
FAR_API int lstat(const char* path, struct stat* about) noexcept {
  return fstatat(AT_FDCWD, path, about, AT_SYMLINK_NOFOLLOW);
}
FAR_API int lstat64(const char* path, struct stat64* about) noexcept {
  return fstatat(AT_FDCWD, path, reinterpret_cast<struct stat*>(about), AT_SYMLINK_NOFOLLOW);
}

#if defined(__x86_64__)

// What programs call instead that were built with a C library before 2.33. The version is that of the structure.
FAR_API int __fxstatat(int version, int directory, const char* path, struct stat* about, int flags) noexcept {
  constexpr int newest_version = 1;
  if (version >= 0 && version <= newest_version) return fstatat(directory, path, about, flags);
  errno = EINVAL;
  return -1;
}
FAR_API int __fxstatat64(int version, int directory, const char* path, struct stat64* about, int flags) noexcept {
  return __fxstatat(version, directory, path, reinterpret_cast<struct stat*>(about), flags);
}
FAR_API int __xstat(int version, const char* path, struct stat* about) noexcept {
  return __fxstatat(version, AT_FDCWD, path, about, 0);
}
FAR_API int __xstat64(int version, const char* path, struct stat64* about) noexcept {
  return __fxstatat(version, AT_FDCWD, path, reinterpret_cast<struct stat*>(about), 0);
}
FAR_API int __lxstat(int version, const char* path, struct stat* about) noexcept {
  return __fxstatat(version, AT_FDCWD, path, about, AT_SYMLINK_NOFOLLOW);
}
FAR_API int __lxstat64(int version, const char* path, struct stat64* about) noexcept {
  return __fxstatat(version, AT_FDCWD, path, reinterpret_cast<struct stat*>(about), AT_SYMLINK_NOFOLLOW);
}

#endif

}  // extern "C"
