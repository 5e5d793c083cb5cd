#include "preload/memory_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>

#include "base/units.h"
#include "platform/runtime_thread.h"
#include "preload/direct_calls.h"
#include "preload/in_runtime.h"
#include "preload/process_transfers.h"
#include "preload/runtime.h"

namespace far::preload {
namespace {

constinit std::atomic<bool> may_be_open{false};

bool is_for_program() {
  return active_pager() != nullptr && !platform::on_runtime_thread();
}

void expect_transfers() {
  if (may_be_open.exchange(true)) return;
  watch_transfers();
}

bool ends_like_memory(const char* path) {
  const std::size_t length = std::strlen(path);
  return length >= 3 && std::memcmp(path + length - 3, "mem", 3) == 0;
}

// Whether the path of an open file is that of a file of this process, or of one of its threads.
bool is_own_process_path(const char* path, const char* name) {
  char own[32];
  const int length = std::snprintf(own, sizeof own, "/proc/%d/", static_cast<int>(getpid()));
  if (std::strncmp(path, own, static_cast<std::size_t>(length)) != 0) return false;
  const char* const rest = path + length;
  if (std::strcmp(rest, name) == 0) return true;
  const char* const last = std::strrchr(rest, '/');
  return last != nullptr && std::strncmp(rest, "task/", 5) == 0 && std::strcmp(last + 1, name) == 0;
}

bool is_own_memory(int descriptor) {
  return in_runtime([&] { return is_own_process_file(descriptor, "mem"); });
}

// ---- transfers: results are the kernel's ----

struct transfer {
  int descriptor;
  bool writes;
};

// Whether the kernel would find memory there. It knows neither holes of the far heap nor guards: something is mapped
// there, and a transfer with this file asks for no rights.
bool is_there(const pager::pager& far, const std::byte* at) {
  if (!far.contains(at)) return true;  // or the kernel will say
  const result<pager::pager::mapping> found = far.mapping_at(at, page_bytes);
  return found ? !found.value().guarded : far.origin_of(at, 1).ok();
}

// How much is there from `place` on, of `bytes`.
std::size_t bytes_there(std::uintptr_t place, std::size_t bytes) {
  std::size_t there = 0;
  while (there < bytes && is_there(*active_pager(), reinterpret_cast<const std::byte*>(place + there))) {
    there += page_bytes - (place + there) % page_bytes;
  }
  return std::min(there, bytes);
}

// The buffer may be far, too, and in fault_mode::in_line the kernel waits for nobody there, either.
long transfer_part(const transfer& with, std::uintptr_t buffer, std::size_t bytes, std::uintptr_t place) {
  const std::size_t there = bytes_there(place, bytes);
  if (there == 0 && bytes > 0) return -EIO;
  bytes = there;
  const pinned_part memory(place, bytes);
  const pinned_part room(buffer, bytes);
  const long number = with.writes ? SYS_pwrite64 : SYS_pread64;
  const long done = syscall(number, with.descriptor, buffer, bytes, place);
  return done < 0 ? -errno : done;
}

// As in the kernel, what was transferred before memory that is not there counts; but a bad buffer refuses all of it.
long transfer_buffer(const transfer& with, std::uintptr_t buffer, std::size_t bytes, std::uintptr_t place) {
  constexpr std::size_t most_bytes = 0x7ffff000;
  std::size_t done = 0;
  bytes = std::min(bytes, most_bytes);
  do {
    const std::size_t part = std::min(pinned_part::bytes_from(place + done, bytes - done),
                                      pinned_part::bytes_from(buffer + done, bytes - done));
    const long result = in_runtime([&] { return transfer_part(with, buffer + done, part, place + done); });
    if (result < 0) return done > 0 && result == -EIO ? static_cast<long>(done) : result;
    done += static_cast<std::size_t>(result);
    if (static_cast<std::size_t>(result) < part) break;
  } while (done < bytes);
  return static_cast<long>(done);
}

long transfer_vectors(const transfer& with, const iovec* vectors, long count, std::uintptr_t place) {
  if (count < 0 || count > IOV_MAX) return -EINVAL;
  const vector_copy copy(vectors, static_cast<std::size_t>(count), load_vectors);
  if (!copy.is_good()) return -EFAULT;
  long done = 0;
  for (const iovec& vector : copy.all()) {
    const long result = transfer_buffer(with, reinterpret_cast<std::uintptr_t>(vector.iov_base), vector.iov_len,
                                        place + static_cast<std::uintptr_t>(done));
    if (result < 0) return done > 0 ? done : result;
    done += result;
    if (static_cast<std::size_t>(result) < vector.iov_len) break;
  }
  return done;
}

// The same from where the descriptor stands, which moves.
template <typename Transfer>
long transfer_there(int descriptor, Transfer make) {
  const long place = in_runtime([=] { return syscall(SYS_lseek, descriptor, 0, SEEK_CUR); });
  const long done = make(static_cast<std::uintptr_t>(place));
  if (done > 0) in_runtime([=] { return syscall(SYS_lseek, descriptor, place + done, SEEK_SET); });
  return done;
}

bool is_transfer(long number) {
  switch (number) {
    case SYS_read:
    case SYS_write:
    case SYS_pread64:
    case SYS_pwrite64:
    case SYS_readv:
    case SYS_writev:
    case SYS_preadv:
    case SYS_pwritev:
    case SYS_preadv2:
    case SYS_pwritev2: return true;
    default: return false;
  }
}

// Flags are the kernel's to judge.
bool has_flags(long number, const call_arguments& arguments) {
  return (number == SYS_preadv2 || number == SYS_pwritev2) && arguments[5] != 0;
}

long make_transfer(long number, const call_arguments& arguments) {
  const int descriptor = static_cast<int>(arguments[0]);
  const auto buffer = static_cast<std::uintptr_t>(arguments[1]);
  const auto bytes = static_cast<std::size_t>(arguments[2]);
  const auto* const vectors = reinterpret_cast<const iovec*>(arguments[1]);
  const auto place = static_cast<std::uintptr_t>(arguments[3]);
  const transfer in{descriptor, false};
  const transfer out{descriptor, true};
  const auto buffer_there = [&](const transfer& with) {
    return transfer_there(descriptor, [&](std::uintptr_t at) { return transfer_buffer(with, buffer, bytes, at); });
  };
  const auto vectors_there = [&](const transfer& with) {
    return transfer_there(descriptor,
                          [&](std::uintptr_t at) { return transfer_vectors(with, vectors, arguments[2], at); });
  };
  const bool stands = arguments[3] == -1;  // of preadv2 and pwritev2
  switch (number) {
    case SYS_read: return buffer_there(in);
    case SYS_write: return buffer_there(out);
    case SYS_pread64: return transfer_buffer(in, buffer, bytes, place);
    case SYS_pwrite64: return transfer_buffer(out, buffer, bytes, place);
    case SYS_readv: return vectors_there(in);
    case SYS_writev: return vectors_there(out);
    case SYS_preadv: return transfer_vectors(in, vectors, arguments[2], place);
    case SYS_pwritev: return transfer_vectors(out, vectors, arguments[2], place);
    case SYS_preadv2: return stands ? vectors_there(in) : transfer_vectors(in, vectors, arguments[2], place);
    default: return stands ? vectors_there(out) : transfer_vectors(out, vectors, arguments[2], place);
  }
}

}  // namespace

// Most files are told apart by their properties alone.
bool is_own_process_file(int descriptor, const char* name) noexcept {
  struct stat about{};
  if (syscall(SYS_fstat, descriptor, &about) != 0) return false;
  if (!S_ISREG(about.st_mode) || about.st_size != 0 || about.st_nlink != 1) return false;
  char link[32];
  char path[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const long bytes = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  if (bytes <= 0) return false;
  path[bytes] = 0;
  return is_own_process_path(path, name);
}

void note_opened(int descriptor, const char* path) noexcept {
  if (descriptor < 0 || !is_for_program() || may_be_open.load() || !ends_like_memory(path)) return;
  const int saved_errno = errno;
  if (is_own_memory(descriptor)) expect_transfers();
  errno = saved_errno;
}

// A path that cannot be read, because it is bad or remote, counts as this file.
void note_opening(const char* path) noexcept {
  if (!is_for_program() || may_be_open.load()) return;
  const int saved_errno = errno;
  const bool may_be = in_runtime([&] {
    char text[64]{};
    const iovec to{text, sizeof text - 1};
    const iovec from{const_cast<char*>(path), sizeof text - 1};
    return syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0) <= 0 || ends_like_memory(text);
  });
  if (may_be) expect_transfers();
  errno = saved_errno;
}

bool serve_memory_file(long number, const call_arguments& arguments, long* result) noexcept {
  if (!may_be_open.load(std::memory_order_relaxed) || !is_transfer(number) || !is_for_program()) [[likely]]
    return false;
  const int saved_errno = errno;
  const bool serves = !has_flags(number, arguments) && is_own_memory(static_cast<int>(arguments[0]));
  if (serves) *result = make_transfer(number, arguments);
  errno = saved_errno;
  return serves;
}

std::size_t pinned_part::bytes_from(std::uintptr_t address, std::size_t bytes) noexcept {
  return std::min(bytes, most_pages * page_bytes - address % page_bytes);
}

pinned_part::pinned_part(std::uintptr_t address, std::size_t bytes) noexcept {
  const int saved_errno = errno;
  in_runtime([&] {
    pager::pager& far = *active_pager();
    for (std::uintptr_t at = round_down(address, page_bytes); at < address + bytes; at += page_bytes) {
      const auto* const page = reinterpret_cast<const std::byte*>(at);
      if (!far.contains(page) || !far.mapping_at(page, page_bytes).ok()) continue;
      far.pin(page, page_bytes);
      pages_[count_++] = page;
    }
  });
  errno = saved_errno;
}

pinned_part::~pinned_part() {
  if (count_ == 0) return;
  const int saved_errno = errno;
  in_runtime([&] {
    for (const std::byte* const page : std::span(pages_).first(count_)) active_pager()->unpin(page, page_bytes);
  });
  errno = saved_errno;
}

}  // namespace far::preload
