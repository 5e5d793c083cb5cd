// The functions by which a program reads and writes its own memory through the kernel: /proc/self/mem, and in
// fault_mode::thread process_vm_readv and process_vm_writev (in inline mode syscall_guard.h serves these). The kernel
// waits for nobody there, and would fail at remote pages. So they are brought in and pinned meanwhile.
//
// Other files cost one comparison. Every function ends in a jump to the C library's, since these are cancellation
// points.
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>

#include "base/units.h"
#include "far/detail/api.h"
#include "platform/runtime_thread.h"
#include "preload/in_runtime.h"
#include "preload/runtime.h"

namespace far::preload {
namespace {

template <typename Function>
Function next(std::atomic<void*>& known, const char* name) {
  void* found = known.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = dlsym(RTLD_NEXT, name);
    known.store(found, std::memory_order_relaxed);
  }
  return reinterpret_cast<Function>(found);
}

// The C library's function of this name and type.
#define FAR_NEXT(name, type)                            \
  ([] {                                                 \
    static constinit std::atomic<void*> known{nullptr}; \
    return ::far::preload::next<type>(known, name);     \
  }())

using read_function = ssize_t (*)(int, void*, std::size_t);
using write_function = ssize_t (*)(int, const void*, std::size_t);
using pread_function = ssize_t (*)(int, void*, std::size_t, off_t);
using pwrite_function = ssize_t (*)(int, const void*, std::size_t, off_t);

// ---- descriptors ----

// Numbers that some open() returned for this process's memory. The file may be another one by now.
constexpr std::size_t most_noted = 1024;
constinit std::array<std::atomic<bool>, most_noted> noted{};
constinit std::atomic<bool> any_noted{false};

// Whether the path of an open file is that of the memory of this process, or of one of its threads.
bool is_memory_path(const char* path) {
  char own[64];
  const int length = std::snprintf(own, sizeof own, "/proc/%d/", static_cast<int>(getpid()));
  if (std::strncmp(path, own, static_cast<std::size_t>(length)) != 0) return false;
  const char* const rest = path + length;
  if (std::strcmp(rest, "mem") == 0) return true;
  const char* const last = std::strrchr(rest, '/');
  return last != nullptr && std::strncmp(rest, "task/", 5) == 0 && std::strcmp(last, "/mem") == 0;
}

bool is_memory_file(int descriptor) {
  char link[64];
  char path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t bytes = readlink(link, path, sizeof path - 1);
  if (bytes <= 0) return false;
  path[bytes] = 0;
  return is_memory_path(path);
}

// To be told of each file that the program opens. Returns the descriptor.
int note_opened(int descriptor, const char* path) {
  if (descriptor < 0 || static_cast<std::size_t>(descriptor) >= most_noted) return descriptor;
  if (active_pager() == nullptr || platform::on_runtime_thread()) return descriptor;
  const std::size_t length = std::strlen(path);
  if (length < 3 || std::memcmp(path + length - 3, "mem", 3) != 0) return descriptor;
  const int saved_errno = errno;
  if (is_memory_file(descriptor)) {
    noted[static_cast<std::size_t>(descriptor)].store(true);
    any_noted.store(true);
  }
  errno = saved_errno;
  return descriptor;
}

// Whether a transfer is one with this process's own memory.
bool is_own_memory(int descriptor) {
  if (!any_noted.load(std::memory_order_relaxed)) [[likely]]
    return false;
  if (descriptor < 0 || static_cast<std::size_t>(descriptor) >= most_noted) return false;
  std::atomic<bool>& note = noted[static_cast<std::size_t>(descriptor)];
  if (!note.load() || active_pager() == nullptr || platform::on_runtime_thread()) return false;
  const int saved_errno = errno;
  const bool still = is_memory_file(descriptor);
  if (!still) note.store(false);
  errno = saved_errno;
  return still;
}

// ---- pages ----

constexpr std::size_t part_pages = 16;
constexpr std::size_t part_bytes = part_pages * page_bytes;

// As much of a transfer as is made at a time, from a place in memory on.
std::size_t part_from(std::uintptr_t address, std::size_t bytes) {
  return std::min(bytes, part_bytes - address % page_bytes);
}

// The pages of a part, pinned while this lives.
class pinned_part {
 public:
  pinned_part(std::uintptr_t address, std::size_t bytes) {
    const std::uintptr_t first = round_down(address, page_bytes);
    const int saved_errno = errno;
    in_runtime([&] {
      pager::pager& far = *active_pager();
      for (std::uintptr_t at = first; at < address + bytes; at += page_bytes) {
        const auto* const page = reinterpret_cast<const std::byte*>(at);
        if (!far.contains(page) || !far.mapping_at(page, page_bytes).ok()) continue;
        far.pin(page, page_bytes);
        pages_[count_++] = page;
      }
    });
    errno = saved_errno;
  }
  ~pinned_part() {
    if (count_ == 0) return;
    const int saved_errno = errno;
    in_runtime([&] {
      for (const std::byte* const page : std::span(pages_).first(count_)) active_pager()->unpin(page, page_bytes);
    });
    errno = saved_errno;
  }
  pinned_part(const pinned_part&) = delete;
  pinned_part& operator=(const pinned_part&) = delete;

 private:
  std::size_t count_ = 0;
  std::array<const std::byte*, part_pages + 1> pages_{};
};

// Makes a transfer part by part: `transfer(done, bytes)` makes one. As in the kernel, an error counts only if nothing
// was transferred before it.
template <typename Transfer>
ssize_t in_parts(std::uintptr_t address, std::size_t bytes, const Transfer& transfer) {
  std::size_t done = 0;
  do {
    const std::size_t part = part_from(address + done, bytes - done);
    const pinned_part pages(address + done, part);
    const ssize_t result = transfer(done, part);
    if (result < 0) return done > 0 ? static_cast<ssize_t>(done) : result;
    done += static_cast<std::size_t>(result);
    if (static_cast<std::size_t>(result) < part) break;
  } while (done < bytes);
  return static_cast<ssize_t>(done);
}

// The place in memory that a descriptor stands at.
std::uintptr_t position_of(int descriptor) {
  return static_cast<std::uintptr_t>(lseek(descriptor, 0, SEEK_CUR));
}

ssize_t read_memory(int descriptor, void* buffer, std::size_t bytes) {
  return in_parts(position_of(descriptor), bytes, [&](std::size_t done, std::size_t part) {
    return FAR_NEXT("read", read_function)(descriptor, static_cast<std::byte*>(buffer) + done, part);
  });
}

ssize_t write_memory(int descriptor, const void* buffer, std::size_t bytes) {
  return in_parts(position_of(descriptor), bytes, [&](std::size_t done, std::size_t part) {
    return FAR_NEXT("write", write_function)(descriptor, static_cast<const std::byte*>(buffer) + done, part);
  });
}

ssize_t read_memory_at(int descriptor, void* buffer, std::size_t bytes, off_t place) {
  return in_parts(static_cast<std::uintptr_t>(place), bytes, [&](std::size_t done, std::size_t part) {
    return FAR_NEXT("pread", pread_function)(descriptor, static_cast<std::byte*>(buffer) + done, part,
                                             place + static_cast<off_t>(done));
  });
}

ssize_t write_memory_at(int descriptor, const void* buffer, std::size_t bytes, off_t place) {
  return in_parts(static_cast<std::uintptr_t>(place), bytes, [&](std::size_t done, std::size_t part) {
    return FAR_NEXT("pwrite", pwrite_function)(descriptor, static_cast<const std::byte*>(buffer) + done, part,
                                               place + static_cast<off_t>(done));
  });
}

// The same for each of several buffers: `transfer(buffer, done)`.
template <typename Transfer>
ssize_t vector_by_vector(const iovec* vectors, int count, const Transfer& transfer) {
  if (count < 0 || count > IOV_MAX) {
    errno = EINVAL;
    return -1;
  }
  ssize_t done = 0;
  for (const iovec& vector : std::span(vectors, static_cast<std::size_t>(count))) {
    const ssize_t result = transfer(vector, done);
    if (result < 0) return done > 0 ? done : result;
    done += result;
    if (static_cast<std::size_t>(result) < vector.iov_len) break;
  }
  return done;
}

// ---- process_vm_readv and process_vm_writev ----

using transfer_function = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

// A walk through buffers that are handled in parts.
class walk {
 public:
  walk(const iovec* vectors, unsigned long count) : left_(vectors, count) { skip_empty(); }
  [[nodiscard]] bool done() const { return left_.empty(); }
  [[nodiscard]] std::byte* place() const { return static_cast<std::byte*>(left_.front().iov_base) + used_; }
  [[nodiscard]] std::size_t bytes() const { return left_.front().iov_len - used_; }
  void advance(std::size_t bytes) {
    used_ += bytes;
    skip_empty();
  }

 private:
  void skip_empty() {
    for (; !left_.empty() && used_ >= left_.front().iov_len; left_ = left_.subspan(1)) used_ = 0;
  }
  std::span<const iovec> left_;
  std::size_t used_ = 0;
};

bool any_far(const iovec* vectors, unsigned long count) {
  const std::span all(vectors, count);
  return std::any_of(all.begin(), all.end(), [](const iovec& vector) {
    return vector.iov_len > 0 && active_pager()->overlaps(vector.iov_base, vector.iov_len);
  });
}

// Whether the number is that of a thread of this process, all of which have its memory.
bool is_of_this_process(pid_t thread) {
  return thread == getpid() || (thread > 0 && syscall(SYS_tgkill, getpid(), thread, 0) == 0);
}

ssize_t transfer(transfer_function call, pid_t process, const iovec* local, unsigned long local_count,
                 const iovec* remote, unsigned long remote_count, unsigned long flags) {
  const bool sensible = flags == 0 && local_count <= IOV_MAX && remote_count <= IOV_MAX && local != nullptr &&
                        remote != nullptr && active_pager() != nullptr && !platform::on_runtime_thread();
  if (!sensible || resolves_in_line() || !any_far(remote, remote_count) || !is_of_this_process(process)) {
    return call(process, local, local_count, remote, remote_count, flags);
  }
  walk here(local, local_count);
  walk there(remote, remote_count);
  ssize_t done = 0;
  while (!here.done() && !there.done()) {
    const auto address = reinterpret_cast<std::uintptr_t>(there.place());
    const std::size_t bytes = part_from(address, std::min(here.bytes(), there.bytes()));
    const pinned_part pages(address, bytes);
    const iovec from_here{here.place(), bytes};
    const iovec from_there{there.place(), bytes};
    const ssize_t result = call(process, &from_here, 1, &from_there, 1, 0);
    if (result <= 0) return done > 0 ? done : result;
    done += result;
    here.advance(static_cast<std::size_t>(result));
    there.advance(static_cast<std::size_t>(result));
  }
  return done;
}

// open(2) has a third argument only with these flags.
bool has_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

}  // namespace
}  // namespace far::preload

#define FAR_READ_MODE(flags, mode)     \
  mode_t mode = 0;                     \
  if (far::preload::has_mode(flags)) { \
    std::va_list rest;                 \
    va_start(rest, flags);             \
    mode = va_arg(rest, mode_t);       \
    va_end(rest);                      \
  }

extern "C" {

FAR_API int open(const char* path, int flags, ...) {
  FAR_READ_MODE(flags, mode);
  return far::preload::note_opened(FAR_NEXT("open", int (*)(const char*, int, ...))(path, flags, mode), path);
}
FAR_API int open64(const char* path, int flags, ...) {
  FAR_READ_MODE(flags, mode);
  return far::preload::note_opened(FAR_NEXT("open64", int (*)(const char*, int, ...))(path, flags, mode), path);
}
FAR_API int openat(int directory, const char* path, int flags, ...) {
  FAR_READ_MODE(flags, mode);
  return far::preload::note_opened(
      FAR_NEXT("openat", int (*)(int, const char*, int, ...))(directory, path, flags, mode), path);
}
FAR_API int openat64(int directory, const char* path, int flags, ...) {
  FAR_READ_MODE(flags, mode);
  return far::preload::note_opened(
      FAR_NEXT("openat64", int (*)(int, const char*, int, ...))(directory, path, flags, mode), path);
}
// Of programs that are compiled with _FORTIFY_SOURCE.
FAR_API int __open_2(const char* path, int flags) {
  return far::preload::note_opened(FAR_NEXT("__open_2", int (*)(const char*, int))(path, flags), path);
}
FAR_API int __open64_2(const char* path, int flags) {
  return far::preload::note_opened(FAR_NEXT("__open64_2", int (*)(const char*, int))(path, flags), path);
}

FAR_API ssize_t read(int descriptor, void* buffer, std::size_t bytes) {
  using namespace far::preload;
  if (is_own_memory(descriptor)) return read_memory(descriptor, buffer, bytes);
  return FAR_NEXT("read", read_function)(descriptor, buffer, bytes);
}
FAR_API ssize_t __read_chk(int descriptor, void* buffer, std::size_t bytes, std::size_t room) {
  using namespace far::preload;
  if (bytes <= room && is_own_memory(descriptor)) return read_memory(descriptor, buffer, bytes);
  return FAR_NEXT("__read_chk", ssize_t(*)(int, void*, std::size_t, std::size_t))(descriptor, buffer, bytes, room);
}
FAR_API ssize_t write(int descriptor, const void* buffer, std::size_t bytes) {
  using namespace far::preload;
  if (is_own_memory(descriptor)) return write_memory(descriptor, buffer, bytes);
  return FAR_NEXT("write", write_function)(descriptor, buffer, bytes);
}
FAR_API ssize_t pread(int descriptor, void* buffer, std::size_t bytes, off_t place) {
  using namespace far::preload;
  if (is_own_memory(descriptor)) return read_memory_at(descriptor, buffer, bytes, place);
  return FAR_NEXT("pread", pread_function)(descriptor, buffer, bytes, place);
}
FAR_API ssize_t pread64(int descriptor, void* buffer, std::size_t bytes, off64_t place) {
  return pread(descriptor, buffer, bytes, place);
}
FAR_API ssize_t __pread_chk(int descriptor, void* buffer, std::size_t bytes, off_t place, std::size_t room) {
  using namespace far::preload;
  if (bytes <= room && is_own_memory(descriptor)) return read_memory_at(descriptor, buffer, bytes, place);
  using function = ssize_t (*)(int, void*, std::size_t, off_t, std::size_t);
  return FAR_NEXT("__pread_chk", function)(descriptor, buffer, bytes, place, room);
}
FAR_API ssize_t __pread64_chk(int descriptor, void* buffer, std::size_t bytes, off64_t place, std::size_t room) {
  return __pread_chk(descriptor, buffer, bytes, place, room);
}
FAR_API ssize_t pwrite(int descriptor, const void* buffer, std::size_t bytes, off_t place) {
  using namespace far::preload;
  if (is_own_memory(descriptor)) return write_memory_at(descriptor, buffer, bytes, place);
  return FAR_NEXT("pwrite", pwrite_function)(descriptor, buffer, bytes, place);
}
FAR_API ssize_t pwrite64(int descriptor, const void* buffer, std::size_t bytes, off64_t place) {
  return pwrite(descriptor, buffer, bytes, place);
}

FAR_API ssize_t readv(int descriptor, const iovec* vectors, int count) {
  using namespace far::preload;
  if (is_own_memory(descriptor)) {
    return vector_by_vector(vectors, count, [descriptor](const iovec& one, ssize_t /*done*/) {
      return read_memory(descriptor, one.iov_base, one.iov_len);
    });
  }
  return FAR_NEXT("readv", ssize_t(*)(int, const iovec*, int))(descriptor, vectors, count);
}
FAR_API ssize_t writev(int descriptor, const iovec* vectors, int count) {
  using namespace far::preload;
  if (is_own_memory(descriptor)) {
    return vector_by_vector(vectors, count, [descriptor](const iovec& one, ssize_t /*done*/) {
      return write_memory(descriptor, one.iov_base, one.iov_len);
    });
  }
  return FAR_NEXT("writev", ssize_t(*)(int, const iovec*, int))(descriptor, vectors, count);
}
FAR_API ssize_t preadv(int descriptor, const iovec* vectors, int count, off_t place) {
  using namespace far::preload;
  if (is_own_memory(descriptor)) {
    return vector_by_vector(vectors, count, [descriptor, place](const iovec& one, ssize_t done) {
      return read_memory_at(descriptor, one.iov_base, one.iov_len, place + done);
    });
  }
  return FAR_NEXT("preadv", ssize_t(*)(int, const iovec*, int, off_t))(descriptor, vectors, count, place);
}
FAR_API ssize_t preadv64(int descriptor, const iovec* vectors, int count, off64_t place) {
  return preadv(descriptor, vectors, count, place);
}
FAR_API ssize_t pwritev(int descriptor, const iovec* vectors, int count, off_t place) {
  using namespace far::preload;
  if (is_own_memory(descriptor)) {
    return vector_by_vector(vectors, count, [descriptor, place](const iovec& one, ssize_t done) {
      return write_memory_at(descriptor, one.iov_base, one.iov_len, place + done);
    });
  }
  return FAR_NEXT("pwritev", ssize_t(*)(int, const iovec*, int, off_t))(descriptor, vectors, count, place);
}
FAR_API ssize_t pwritev64(int descriptor, const iovec* vectors, int count, off64_t place) {
  return pwritev(descriptor, vectors, count, place);
}

FAR_API ssize_t process_vm_readv(pid_t process, const iovec* local, unsigned long local_count, const iovec* remote,
                                 unsigned long remote_count, unsigned long flags) noexcept {
  using namespace far::preload;
  return transfer(FAR_NEXT("process_vm_readv", transfer_function), process, local, local_count, remote, remote_count,
                  flags);
}
FAR_API ssize_t process_vm_writev(pid_t process, const iovec* local, unsigned long local_count, const iovec* remote,
                                  unsigned long remote_count, unsigned long flags) noexcept {
  using namespace far::preload;
  return transfer(FAR_NEXT("process_vm_writev", transfer_function), process, local, local_count, remote, remote_count,
                  flags);
}

}  // extern "C"
