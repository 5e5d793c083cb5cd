#include "backend/file/store_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

#include "backend/slot_allocator.h"
#include "base/log.h"
#include "base/units.h"
#include "platform/own_descriptors.h"

namespace far::backend {
namespace {

// The first page of a named file says that its bytes are worth nothing once the process that wrote them is gone.
constexpr std::string_view mark_of_ours = "farheap far tier, version 1: safe to delete when no program uses it\n";

error failure(const std::string& place, const std::string& action, int code, const std::string& advice) {
  std::string message = "far tier 'file:" + place + "': " + action;
  if (code != 0) message += std::string(" (") + std::strerror(code) + ")";
  return {message + "; " + advice, code == 0 ? EINVAL : code};
}

int open_retrying(const char* path, int flags) {
  int descriptor = -1;
  do {
    descriptor = ::open(path, flags | O_CLOEXEC, 0600);
  } while (descriptor < 0 && errno == EINTR);
  return platform::own_descriptor(descriptor);
}

int make_unlinked(const std::string& directory) {
  const int descriptor = open_retrying(directory.c_str(), O_TMPFILE | O_RDWR);
  // Some file systems (overlays, network) have no O_TMPFILE: a file that is removed at once is as good.
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return descriptor;
  std::string name = directory + "/farheap-XXXXXX";
  const int named = platform::own_descriptor(mkostemp(name.data(), O_CLOEXEC));
  if (named >= 0) unlink(name.c_str());
  return named;
}

// The lock of a process that has just ended may be held a little longer by the remains of its io_uring.
bool lock_alone(int descriptor) {
  constexpr int tries = 20;
  constexpr timespec pause{0, 10'000'000};
  for (int i = 0; i < tries; ++i) {
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    nanosleep(&pause, nullptr);
  }
  errno = EWOULDBLOCK;
  return false;
}

bool begins_with_our_mark(int descriptor) {
  std::array<char, mark_of_ours.size()> start{};
  return pread(descriptor, start.data(), start.size(), 0) == static_cast<ssize_t>(start.size()) &&
         std::string_view(start.data(), start.size()) == mark_of_ours;
}

bool is_ram(const struct statfs& system) {
  return system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
}

}  // namespace

default_place default_place_of_files() {
  for (const char* const variable : {"FARHEAP_DIR", "TMPDIR"}) {
    const char* const directory = std::getenv(variable);
    if (directory != nullptr && *directory != '\0') return {directory, variable};
  }
  return {"/var/tmp"};
}

bool lies_in_ram(const std::string& directory) {
  struct statfs system{};
  return statfs(directory.c_str(), &system) == 0 && is_ram(system);
}

bool lies_in_ram(int descriptor) {
  struct statfs system{};
  return fstatfs(descriptor, &system) == 0 && is_ram(system);
}

result<std::unique_ptr<store_file>> store_file::open(const file_options& chosen) {
  std::unique_ptr<store_file> file(new store_file);
  file->owner_process_ = getpid();
  if (result<void> opened = chosen.path.empty() ? file->open_default(chosen) : file->open_path(chosen); !opened) {
    return opened.error();
  }
  if (result<void> aligned = file->choose_alignment(chosen); !aligned) return aligned.error();
  if (result<void> sized = file->choose_capacity(chosen); !sized) return sized.error();
  return file;
}

store_file::~store_file() {
  if (descriptor_ < 0) return;
  // Far pages die with the process, so the space goes back now. An io_uring lets go of its file some time after it was
  // closed, so closing would not do. Not from a forked child: the bytes are its parent's.
  if (is_ours_ && owner_process_ == getpid()) {
    if (ftruncate(descriptor_, static_cast<off_t>(data_position_)) != 0) {
      log_line(log_level::warning, "cannot give the space of '%s' back (%s); delete it", place_.c_str(),
               std::strerror(errno));
    }
    if (kind_ == kind::named) flock(descriptor_, LOCK_UN);
  }
  close(descriptor_);
}

result<void> store_file::open_default(const file_options& /*chosen*/) {
  const default_place where = default_place_of_files();
  result<void> opened =
      open_unlinked(where.directory, std::string("set ") + where.variable +
                                         " to a writable directory on a disk, or name one: file:PATH");
  if (opened.ok()) warn_when_ram();
  return opened;
}

void store_file::warn_when_ram() const {
  if (!lies_in_ram(descriptor_)) return;
  log_line(log_level::warning,
           "far tier 'file:' lies in %s, which is RAM: evicting to it saves no memory; set FARHEAP_DIR to a directory "
           "on a disk",
           place_.c_str());
}

result<void> store_file::open_path(const file_options& chosen) {
  struct stat status{};
  if (stat(chosen.path.c_str(), &status) != 0) {
    if (errno == ENOENT) return open_named(chosen.path, false);
    return failure(chosen.path, "cannot be opened", errno, "name a directory, a new file or a block device");
  }
  if (S_ISDIR(status.st_mode)) return open_unlinked(chosen.path, "name a writable directory on a disk");
  if (S_ISREG(status.st_mode)) return open_named(chosen.path, true);
  if (S_ISBLK(status.st_mode)) return open_device(chosen.path);
  return failure(chosen.path, "is neither a directory, a file nor a block device", 0,
                 "name a directory, a new file or a block device");
}

result<void> store_file::open_unlinked(const std::string& directory, const std::string& advice) {
  kind_ = kind::unlinked;
  place_ = directory;
  descriptor_ = make_unlinked(directory);
  if (descriptor_ < 0) return failure(directory, "no file can be created there", errno, advice);
  is_ours_ = true;
  return {};
}

result<void> store_file::open_named(const std::string& path, bool exists) {
  kind_ = kind::named;
  place_ = path;
  descriptor_ = open_retrying(path.c_str(), exists ? O_RDWR : O_RDWR | O_CREAT | O_EXCL);
  if (descriptor_ < 0) {
    return failure(path, exists ? "cannot be opened" : "cannot be created", errno,
                   "name a directory, a new file or a block device that you may write to");
  }
  if (!lock_alone(descriptor_)) {
    const bool is_held = errno == EWOULDBLOCK;
    return failure(path, is_held ? "is in use by another far heap, of this process or of another" : "cannot be locked",
                   is_held ? 0 : errno,
                   "name another file, or a directory, in which each far heap has a file of its own");
  }
  struct stat status{};
  const bool known = fstat(descriptor_, &status) == 0;
  if (!known || (status.st_size != 0 && !begins_with_our_mark(descriptor_))) {
    return failure(path, "holds data that would be overwritten", 0, "name another file, or delete this one first");
  }
  // Some file systems give all files the same mode, and the owner may have meant it.
  if ((status.st_mode & 077) != 0 && fchmod(descriptor_, 0600) != 0) {
    log_line(
        log_level::warning,
        "far tier 'file:%s': other users may read it (mode %03o, which cannot be changed: %s); name a file of this "
        "user's on another file system if they must not",
        path.c_str(), status.st_mode & 0777, std::strerror(errno));
  }
  is_ours_ = true;
  data_position_ = page_bytes;
  if (ftruncate(descriptor_, 0) != 0 || ftruncate(descriptor_, page_bytes) != 0 ||
      pwrite(descriptor_, mark_of_ours.data(), mark_of_ours.size(), 0) != static_cast<ssize_t>(mark_of_ours.size())) {
    return failure(path, "cannot be written", errno, "make room on its file system, or name another file");
  }
  return {};
}

result<void> store_file::open_device(const std::string& path) {
  kind_ = kind::device;
  place_ = path;
  // O_EXCL: fails when the device is mounted or otherwise in use.
  descriptor_ = open_retrying(path.c_str(), O_RDWR | O_EXCL);
  if (descriptor_ < 0) {
    const bool busy = errno == EBUSY;
    return failure(path, busy ? "is mounted or otherwise in use" : "cannot be opened", errno,
                   busy ? "unmount it (its contents would be overwritten), or name another device"
                        : "name a device that you may write to");
  }
  if (ioctl(descriptor_, BLKGETSIZE64, &device_bytes_) != 0) {
    return failure(path, "does not tell its size", errno, "name another device");
  }
  return {};
}

result<void> store_file::choose_alignment(const file_options& chosen) {
  if (chosen.direct.has_value() && !*chosen.direct) return {};
  std::uint64_t position_alignment = page_bytes;
  std::uint64_t buffer_alignment = page_bytes;
  bool possible = true;
#ifdef STATX_DIOALIGN
  struct statx status{};
  if (statx(descriptor_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN) != 0) {
    position_alignment = status.stx_dio_offset_align;
    buffer_alignment = status.stx_dio_mem_align;
    // Zero: no direct transfers for this file. More than a page: slots would not be aligned.
    possible = position_alignment != 0 && buffer_alignment != 0 && position_alignment <= page_bytes &&
               buffer_alignment <= page_bytes;
  }
#endif
  const int flags = fcntl(descriptor_, F_GETFL);
  possible = possible && flags >= 0 && fcntl(descriptor_, F_SETFL, flags | O_DIRECT) == 0;
  if (possible) {
    // Some file systems take the flag and refuse the transfer. (Static: the stack might lie in far memory.)
    alignas(page_bytes) static std::byte page[page_bytes];
    possible = pread(descriptor_, page, page_bytes, 0) >= 0;
    if (!possible) static_cast<void>(fcntl(descriptor_, F_SETFL, flags));
  }
  if (possible) {
    direct_ = true;
    position_alignment_ = position_alignment;
    buffer_alignment_ = buffer_alignment;
    return {};
  }
  if (chosen.direct.has_value()) {
    return failure(place_, "the file system does not support O_DIRECT", EINVAL,
                   "leave out direct=1, or name a place on another file system");
  }
  log_line(log_level::verbose, "far tier 'file:%s': no O_DIRECT here, so transfers go through the page cache",
           place_.c_str());
  return {};
}

result<void> store_file::choose_capacity(const file_options& chosen) {
  constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
  constexpr std::uint64_t largest_map_bytes = slot_allocator::maximum_capacity_slots * page_bytes;
  std::uint64_t limit_bytes = chosen.capacity_bytes == 0 ? unlimited : chosen.capacity_bytes;
  if (limit_bytes != unlimited && limit_bytes > largest_map_bytes) {
    return failure(place_, "a capacity of " + format_size(limit_bytes) + " is too large", 0,
                   "write at most " + format_size(largest_map_bytes));
  }
  if (kind_ == kind::device) {
    if (limit_bytes != unlimited && limit_bytes > device_bytes_) {
      return failure(place_, "the device holds only " + format_size(device_bytes_), 0, "choose a smaller capacity");
    }
    limit_bytes = std::min(limit_bytes, device_bytes_);
  }
  rlimit file_size{};
  // Growing beyond this limit would not just fail but kill the program with SIGXFSZ.
  if (kind_ != kind::device && getrlimit(RLIMIT_FSIZE, &file_size) == 0 && file_size.rlim_cur != RLIM_INFINITY) {
    limit_bytes =
        std::min<std::uint64_t>(limit_bytes, file_size.rlim_cur - std::min(file_size.rlim_cur, data_position_));
  }
  if (limit_bytes < page_bytes) {
    return failure(place_, "there is no room for a single page", 0,
                   "raise the limit on file sizes (ulimit -f), or name another place");
  }
  capacity_slots_ = limit_bytes == unlimited ? unlimited : limit_bytes / page_bytes;

  // The map is sized once. File systems grow while they are mounted, so leave room.
  struct statvfs system{};
  std::uint64_t system_bytes = largest_map_bytes;
  if (fstatvfs(descriptor_, &system) == 0 && system.f_blocks != 0) {
    system_bytes = std::max<std::uint64_t>(4 * system.f_blocks * system.f_frsize, tib);
  }
  possible_slots_ = std::min({limit_bytes, system_bytes, largest_map_bytes}) / page_bytes;
  if (kind_ == kind::device) possible_slots_ = capacity_slots_;
  return {};
}

int store_file::reserve(slot_id first, std::uint64_t count) {
  if (kind_ == kind::device) return 0;
  const auto begin = static_cast<off_t>(position_of(first));
  const auto length = static_cast<off_t>(count * page_bytes);
  if (!may_write_up_to(position_of(first + count))) return ENOSPC;
  int code = 0;
  if (!cannot_reserve_.load(std::memory_order_relaxed)) {
    do {
      code = fallocate(descriptor_, 0, begin, length) == 0 ? 0 : errno;
    } while (code == EINTR);
    if (code == EOPNOTSUPP || code == ENOSYS) {
      cannot_reserve_.store(true, std::memory_order_relaxed);
      log_line(log_level::verbose,
               "far tier 'file:%s': space cannot be reserved here; a full disk shows as a failed write",
               place_.c_str());
    }
  }
  if (cannot_reserve_.load(std::memory_order_relaxed)) {
    code = ftruncate(descriptor_, begin + length) == 0 ? 0 : errno;
  }
  return code == EDQUOT || code == EFBIG ? ENOSPC : code;
}

bool store_file::may_write_up_to(std::uint64_t end) const {
  rlimit limit{};
  return kind_ == kind::device || getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
         round_up(end, page_bytes) <= limit.rlim_cur;  // what is not aligned is written in whole pages
}

std::string store_file::describe() const {
  std::string text = place_ + " (";
  switch (kind_) {
    case kind::unlinked: text += "unlinked"; break;
    case kind::named: text += "named file"; break;
    case kind::device: text += "block device"; break;
  }
  return text + (direct_ ? ", O_DIRECT" : ", page cache") + ")";
}

}  // namespace far::backend
