// The functions by which a program reads and writes its own memory through the kernel: /proc/self/mem (memory_file.h),
// and in fault_mode::thread process_vm_readv and process_vm_writev (in inline mode syscall_guard.h serves these). The
// kernel waits for nobody there, and would fail at remote pages. So they are brought in and pinned meanwhile.
//
// Other files cost one comparison. Every function ends in a jump to the C library's, since these are cancellation
// points. The C library's own reads and writes, for streams, are noticed by direct_calls.h.
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>

#include "base/units.h"
#include "far/detail/api.h"
#include "platform/runtime_thread.h"
#include "preload/descriptors.h"
#include "preload/memory_file.h"
#include "preload/next_function.h"
#include "preload/process_files.h"
#include "preload/process_transfers.h"
#include "preload/runtime.h"

namespace far::preload {
namespace {

// ---- the C library's functions ----

using open_function = int (*)(const char*, int, ...);
using openat_function = int (*)(int, const char*, int, ...);
using read_function = ssize_t (*)(int, void*, std::size_t);
using write_function = ssize_t (*)(int, const void*, std::size_t);
using pread_function = ssize_t (*)(int, void*, std::size_t, off_t);
using pwrite_function = ssize_t (*)(int, const void*, std::size_t, off_t);
using vectors_function = ssize_t (*)(int, const iovec*, int);
using pvectors_function = ssize_t (*)(int, const iovec*, int, off_t);
using pvectors2_function = ssize_t (*)(int, const iovec*, int, off_t, int);
using fopen_function = FILE* (*)(const char*, const char*);
using freopen_function = FILE* (*)(const char*, const char*, FILE*);

// ---- files ----

int opened(int descriptor, const char* path) {
  note_opened(descriptor, path);
  show_program_limits(descriptor, path);
  return descriptor;
}

FILE* opened(FILE* stream, const char* path) {
  if (stream == nullptr || path == nullptr) return stream;
  show_program_threads(opened(fileno(stream), path), path);
  return stream;
}

// The C library puts the new file in the place of the stream's descriptor, or closes that.
FILE* reopened(freopen_function next, const char* path, const char* mode, FILE* stream) {
  spare_own_descriptor(stream);
  const int number = number_of(stream);
  FILE* const result = next(path, mode, stream);
  if (result == nullptr || stream == stderr) note_standard_error(number, result != nullptr);
  return opened(result, path);
}

// The result of a transfer with the program's own memory; nothing where it is with another file.
template <typename Buffer>
std::optional<ssize_t> transfer_memory(long number, int descriptor, Buffer buffer, long count, off_t place = 0,
                                       int flags = 0) {
  long result = 0;
  if (!serve_memory_file(number, {descriptor, reinterpret_cast<long>(buffer), count, place, 0, flags}, &result))
    return std::nullopt;
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// ---- process_vm_readv and process_vm_writev ----

using transfer_function = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

bool any_far(std::span<const iovec> vectors) {
  return std::any_of(vectors.begin(), vectors.end(), [](const iovec& vector) {
    return vector.iov_len > 0 && active_pager()->overlaps(vector.iov_base, vector.iov_len);
  });
}

ssize_t answer(long result) {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

ssize_t transfer(transfer_function call, bool writes, pid_t process, const iovec* local, unsigned long local_count,
                 const iovec* remote, unsigned long remote_count, unsigned long flags) {
  const bool sensible = flags == 0 && local_count <= IOV_MAX && remote_count <= IOV_MAX && local != nullptr &&
                        remote != nullptr && active_pager() != nullptr && !platform::on_runtime_thread();
  if (!sensible || resolves_in_line()) return call(process, local, local_count, remote, remote_count, flags);
  const auto copy = [](iovec to, iovec from) -> long {
    const auto address = reinterpret_cast<std::uintptr_t>(from.iov_base);
    to.iov_len = from.iov_len = pinned_part::bytes_from(address, from.iov_len);
    const pinned_part pages(address, from.iov_len);
    return next<"process_vm_readv", transfer_function>()(getpid(), &to, 1, &from, 1, 0);
  };
  const int saved_errno = errno;
  const vector_copy ours(local, local_count, copy);
  const vector_copy theirs(remote, remote_count, copy);
  errno = saved_errno;
  if (!ours.is_good() || !theirs.is_good()) return call(process, local, local_count, remote, remote_count, flags);
  const process_transfer asked{writes, process, ours.all(), theirs.all()};
  const auto make = [&](const iovec& here, const iovec& there) -> long {
    const ssize_t done = call(process, &here, 1, &there, 1, 0);
    return done < 0 ? -errno : done;
  };
  constexpr std::size_t part_bytes = 64 * kib;
  if (any_far(asked.remote) && is_of_this_process(process)) {
    return answer(transfer_in_parts(asked, 0, part_bytes, [&](iovec here, iovec there) {
      const auto address = reinterpret_cast<std::uintptr_t>(there.iov_base);
      here.iov_len = there.iov_len = pinned_part::bytes_from(address, there.iov_len);
      const pinned_part pages(address, there.iov_len);
      return make(here, there);
    }));
  }
  const ssize_t done = call(process, local, local_count, remote, remote_count, flags);
  if (done < 0 && errno != EFAULT) return done;
  return answer(transfer_with_other(asked, static_cast<std::size_t>(std::max<ssize_t>(done, 0)), part_bytes, make));
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
  return far::preload::opened(far::preload::next<"open", far::preload::open_function>()(path, flags, mode), path);
}
FAR_API int open64(const char* path, int flags, ...) {
  FAR_READ_MODE(flags, mode);
  return far::preload::opened(far::preload::next<"open64", far::preload::open_function>()(path, flags, mode), path);
}
FAR_API int openat(int directory, const char* path, int flags, ...) {
  FAR_READ_MODE(flags, mode);
  return far::preload::opened(
      far::preload::next<"openat", far::preload::openat_function>()(directory, path, flags, mode), path);
}
FAR_API int openat64(int directory, const char* path, int flags, ...) {
  FAR_READ_MODE(flags, mode);
  return far::preload::opened(
      far::preload::next<"openat64", far::preload::openat_function>()(directory, path, flags, mode), path);
}
// Of programs that are compiled with _FORTIFY_SOURCE.
FAR_API int __open_2(const char* path, int flags) {
  return far::preload::opened(far::preload::next<"__open_2", int (*)(const char*, int)>()(path, flags), path);
}
FAR_API int __open64_2(const char* path, int flags) {
  return far::preload::opened(far::preload::next<"__open64_2", int (*)(const char*, int)>()(path, flags), path);
}

FAR_API int __openat_2(int directory, const char* path, int flags) {
  return far::preload::opened(
      far::preload::next<"__openat_2", int (*)(int, const char*, int)>()(directory, path, flags), path);
}
FAR_API int __openat64_2(int directory, const char* path, int flags) {
  return far::preload::opened(
      far::preload::next<"__openat64_2", int (*)(int, const char*, int)>()(directory, path, flags), path);
}

FAR_API FILE* fopen(const char* path, const char* mode) {
  return far::preload::opened(far::preload::next<"fopen", far::preload::fopen_function>()(path, mode), path);
}
FAR_API FILE* fopen64(const char* path, const char* mode) {
  return far::preload::opened(far::preload::next<"fopen64", far::preload::fopen_function>()(path, mode), path);
}
FAR_API FILE* freopen(const char* path, const char* mode, FILE* stream) {
  return far::preload::reopened(far::preload::next<"freopen", far::preload::freopen_function>(), path, mode, stream);
}
FAR_API FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  return far::preload::reopened(far::preload::next<"freopen64", far::preload::freopen_function>(), path, mode, stream);
}

FAR_API ssize_t read(int descriptor, void* buffer, std::size_t bytes) {
  using namespace far::preload;
  if (const auto done = transfer_memory(SYS_read, descriptor, buffer, static_cast<long>(bytes))) return *done;
  return next<"read", read_function>()(descriptor, buffer, bytes);
}
FAR_API ssize_t __read_chk(int descriptor, void* buffer, std::size_t bytes, std::size_t room) {
  using namespace far::preload;
  if (bytes <= room) return read(descriptor, buffer, bytes);
  return next<"__read_chk", ssize_t (*)(int, void*, std::size_t, std::size_t)>()(descriptor, buffer, bytes, room);
}
FAR_API ssize_t write(int descriptor, const void* buffer, std::size_t bytes) {
  using namespace far::preload;
  if (const auto done = transfer_memory(SYS_write, descriptor, buffer, static_cast<long>(bytes))) return *done;
  return next<"write", write_function>()(descriptor, buffer, bytes);
}
FAR_API ssize_t pread(int descriptor, void* buffer, std::size_t bytes, off_t place) {
  using namespace far::preload;
  if (const auto done = transfer_memory(SYS_pread64, descriptor, buffer, static_cast<long>(bytes), place)) return *done;
  return next<"pread", pread_function>()(descriptor, buffer, bytes, place);
}
FAR_API ssize_t pread64(int descriptor, void* buffer, std::size_t bytes, off64_t place) {
  return pread(descriptor, buffer, bytes, place);
}
FAR_API ssize_t __pread_chk(int descriptor, void* buffer, std::size_t bytes, off_t place, std::size_t room) {
  using namespace far::preload;
  if (bytes <= room) return pread(descriptor, buffer, bytes, place);
  using function = ssize_t (*)(int, void*, std::size_t, off_t, std::size_t);
  return next<"__pread_chk", function>()(descriptor, buffer, bytes, place, room);
}
FAR_API ssize_t __pread64_chk(int descriptor, void* buffer, std::size_t bytes, off64_t place, std::size_t room) {
  return __pread_chk(descriptor, buffer, bytes, place, room);
}
FAR_API ssize_t pwrite(int descriptor, const void* buffer, std::size_t bytes, off_t place) {
  using namespace far::preload;
  if (const auto done = transfer_memory(SYS_pwrite64, descriptor, buffer, static_cast<long>(bytes), place))
    return *done;
  return next<"pwrite", pwrite_function>()(descriptor, buffer, bytes, place);
}
FAR_API ssize_t pwrite64(int descriptor, const void* buffer, std::size_t bytes, off64_t place) {
  return pwrite(descriptor, buffer, bytes, place);
}

FAR_API ssize_t readv(int descriptor, const iovec* vectors, int count) {
  using namespace far::preload;
  if (const auto done = transfer_memory(SYS_readv, descriptor, vectors, count)) return *done;
  return next<"readv", vectors_function>()(descriptor, vectors, count);
}
FAR_API ssize_t writev(int descriptor, const iovec* vectors, int count) {
  using namespace far::preload;
  if (const auto done = transfer_memory(SYS_writev, descriptor, vectors, count)) return *done;
  return next<"writev", vectors_function>()(descriptor, vectors, count);
}
FAR_API ssize_t preadv(int descriptor, const iovec* vectors, int count, off_t place) {
  using namespace far::preload;
  if (const auto done = transfer_memory(SYS_preadv, descriptor, vectors, count, place)) return *done;
  return next<"preadv", pvectors_function>()(descriptor, vectors, count, place);
}
FAR_API ssize_t preadv64(int descriptor, const iovec* vectors, int count, off64_t place) {
  return preadv(descriptor, vectors, count, place);
}
FAR_API ssize_t pwritev(int descriptor, const iovec* vectors, int count, off_t place) {
  using namespace far::preload;
  if (const auto done = transfer_memory(SYS_pwritev, descriptor, vectors, count, place)) return *done;
  return next<"pwritev", pvectors_function>()(descriptor, vectors, count, place);
}
FAR_API ssize_t pwritev64(int descriptor, const iovec* vectors, int count, off64_t place) {
  return pwritev(descriptor, vectors, count, place);
}
FAR_API ssize_t preadv2(int descriptor, const iovec* vectors, int count, off_t place, int flags) {
  using namespace far::preload;
  if (const auto done = transfer_memory(SYS_preadv2, descriptor, vectors, count, place, flags)) return *done;
  return next<"preadv2", pvectors2_function>()(descriptor, vectors, count, place, flags);
}
FAR_API ssize_t preadv64v2(int descriptor, const iovec* vectors, int count, off64_t place, int flags) {
  return preadv2(descriptor, vectors, count, place, flags);
}
FAR_API ssize_t pwritev2(int descriptor, const iovec* vectors, int count, off_t place, int flags) {
  using namespace far::preload;
  if (const auto done = transfer_memory(SYS_pwritev2, descriptor, vectors, count, place, flags)) return *done;
  return next<"pwritev2", pvectors2_function>()(descriptor, vectors, count, place, flags);
}
FAR_API ssize_t pwritev64v2(int descriptor, const iovec* vectors, int count, off64_t place, int flags) {
  return pwritev2(descriptor, vectors, count, place, flags);
}

FAR_API ssize_t process_vm_readv(pid_t process, const iovec* local, unsigned long local_count, const iovec* remote,
                                 unsigned long remote_count, unsigned long flags) noexcept {
  using namespace far::preload;
  return transfer((next<"process_vm_readv", transfer_function>()), false, process, local, local_count, remote,
                  remote_count, flags);
}
FAR_API ssize_t process_vm_writev(pid_t process, const iovec* local, unsigned long local_count, const iovec* remote,
                                  unsigned long remote_count, unsigned long flags) noexcept {
  using namespace far::preload;
  return transfer((next<"process_vm_writev", transfer_function>()), true, process, local, local_count, remote,
                  remote_count, flags);
}

}  // extern "C"
