// System calls that read and write the memory: files, with and without O_DIRECT, pipes, vectors, another process's
// eyes.
#include <fcntl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "world.h"

namespace memory_calls {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

// Where bytes are read back to, and compared. One for each thread, of raw memory.
std::byte* buffer() {
  thread_local std::byte* const buffer = raw_memory(buffer_bytes);
  return buffer;
}

// A part of both copies that may be used by a system call: not always whole pages.
struct part {
  std::byte* main;
  std::byte* twin;
  std::size_t bytes;
};

part any_part(world& w, const range& pages, std::size_t most, std::size_t unit) {
  const std::size_t whole = std::min(pages.bytes(), most);
  std::size_t start = w.random.one_in(2) ? 0 : w.random.below(whole) / unit * unit;
  std::size_t bytes = std::max<std::size_t>(w.random.one_in(2) ? whole - start : w.random.spread(whole - start), 1);
  if (unit != 1) bytes = std::max(unit, bytes / unit * unit);
  return {pages.main() + start, pages.twin() + start, std::min(bytes, pages.bytes() - start)};
}

void must_transfer_alike(const world& w, const char* name, const outcome& main, const outcome& twin) {
  must_agree(w, name, main, twin);
  if (main.value != twin.value)
    fail(w, "%s transfers %ld bytes, where Linux transfers %ld", name, main.value, twin.value);
}

int scratch(world& w, int copy) {
  if (w.own.scratch[copy] < 0) w.own.scratch[copy] = make_file("scratch");
  return w.own.scratch[copy];
}

void open_pipe(world& w) {
  if (w.own.pipe[0] >= 0) return;
  if (::pipe2(w.own.pipe, O_CLOEXEC | O_NONBLOCK) != 0) fail(w, "no pipe: errno %d", errno);
  static_cast<void>(::fcntl(w.own.pipe[1], F_SETPIPE_SZ, buffer_bytes));
}

// Takes what is in the pipe and compares it.
void drain_pipe(world& w, const char* name, const std::byte* expected, std::size_t bytes) {
  std::size_t at = 0;
  while (at < bytes) {
    const ssize_t count = ::read(w.own.pipe[0], buffer() + at, bytes - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(w, "%s: the pipe holds %zu of %zu bytes: errno %d", name, at, bytes, errno);
    at += static_cast<std::size_t>(count);
  }
  verify_copy(w, name, buffer(), expected, bytes);
}

}  // namespace

void read_file(world& w) {
  range pages;
  if (!pick_range(w, pages) || any_hole(pages) || any_maybe_free(pages) || (w.frozen && any_shared(pages))) return;
  const part to = any_part(w, pages, constant_file::bytes, 1);
  const long offset = static_cast<long>(w.random.below(constant_file::bytes / 2));
  const int file = constants().descriptor;
  say(w, "%zu bytes to %p", to.bytes, static_cast<void*>(to.main));
  // Where a page in the middle cannot be written, it is not promised how much comes before it: whole pages then.
  const outcome main = library_call([&] { return ::pread(file, to.main, to.bytes, offset); });
  const outcome twin = kernel_call(SYS_pread64, file, to.twin, to.bytes, offset);
  must_transfer_alike(w, "pread", main, twin);
  if (w.random.one_in(2)) verify_range(w, pages);
}

void write_file(world& w) {
  range pages;
  if (!pick_range(w, pages) || any_hole(pages) || any_maybe_free(pages)) return;
  const part from = any_part(w, pages, buffer_bytes, 1);
  const long offset = static_cast<long>(w.random.below(page_bytes));
  say(w, "%zu bytes from %p", from.bytes, static_cast<void*>(from.main));
  const outcome main = library_call([&] { return ::pwrite(scratch(w, 0), from.main, from.bytes, offset); });
  const outcome twin = kernel_call(SYS_pwrite64, scratch(w, 1), from.twin, from.bytes, offset);
  must_transfer_alike(w, "pwrite", main, twin);
  if (!main.ok()) return;
  const auto written = static_cast<std::size_t>(main.value);
  if (::pread(scratch(w, 0), buffer(), written, offset) != main.value) fail(w, "pread of what was written: %d", errno);
  verify_copy(w, "pwrite", buffer(), from.twin, written);
}

void transfer_vectors(world& w) {
  constexpr int most = 6;
  iovec of_main[most];
  iovec of_twin[most];
  range pages[most];
  int count = 0;
  for (int i = 0; i < most; ++i) {
    range picked;
    if (!pick_writable_range(w, picked)) continue;
    bool again = false;  // one byte twice would depend on the order
    for (int other = 0; other < count; ++other) again = again || pages[other].where == picked.where;
    if (again) continue;
    const part chosen = any_part(w, picked, buffer_bytes / most, 1);
    of_main[count] = {chosen.main, chosen.bytes};
    of_twin[count] = {chosen.twin, chosen.bytes};
    pages[count++] = picked;
  }
  if (count == 0) return;
  say(w, "%d parts", count);
  if (w.random.one_in(2)) {
    const outcome main = library_call([&] { return ::preadv(constants().descriptor, of_main, count, 0); });
    const outcome twin = kernel_call(SYS_preadv, constants().descriptor, of_twin, count, 0, 0);
    must_agree(w, "preadv", main, twin);
    // Less than everything is allowed; the rest is then still what it was.
    if (main.value != twin.value) {
      if (main.value > twin.value) fail(w, "preadv transfers %ld bytes of %ld", main.value, twin.value);
      for (int i = 0; i < count; ++i) {
        write_both(w, static_cast<std::byte*>(of_main[i].iov_base), static_cast<std::byte*>(of_twin[i].iov_base),
                   of_main[i].iov_len);
      }
    }
  } else {
    open_pipe(w);
    const outcome main = library_call([&] { return ::writev(w.own.pipe[1], of_main, count); });
    if (!main.ok()) fail(w, "writev ends with errno %d", main.error);
    auto left = static_cast<std::size_t>(main.value);
    for (int i = 0; i < count && left != 0; ++i) {
      const std::size_t taken = std::min(left, of_twin[i].iov_len);
      drain_pipe(w, "writev", static_cast<std::byte*>(of_twin[i].iov_base), taken);
      left -= taken;
    }
  }
  for (int i = 0; i < count; ++i) verify_range(w, pages[i]);
}

void pass_through_pipe(world& w) {
  range pages;
  if (!pick_writable_range(w, pages)) return;
  open_pipe(w);
  part chosen = any_part(w, pages, buffer_bytes / 2, 1);
  say(w, "%zu bytes at %p", chosen.bytes, static_cast<void*>(chosen.main));
  const std::uint64_t way = w.random.below(3);
  outcome main;
  if (way == 0) {
    main = library_call([&] { return ::write(w.own.pipe[1], chosen.main, chosen.bytes); });
  } else if (way == 1) {
    const iovec vector = {chosen.main, chosen.bytes};
    main = library_call([&] { return ::vmsplice(w.own.pipe[1], &vector, 1, 0); });
  } else {  // a file's pages into the pipe, and from there into the memory
    off_t offset = 0;
    chosen.bytes = std::min(chosen.bytes, buffer_bytes / 4);
    main = library_call(
        [&] { return ::splice(constants().descriptor, &offset, w.own.pipe[1], nullptr, chosen.bytes, 0); });
    if (!main.ok()) fail(w, "splice ends with errno %d", main.error);
    const auto spliced = static_cast<std::size_t>(main.value);
    for (std::size_t at = 0; at < spliced;) {
      const ssize_t count = ::read(w.own.pipe[0], chosen.main + at, spliced - at);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail(w, "read of a spliced pipe: errno %d", errno);
      at += static_cast<std::size_t>(count);
    }
    kernel_call(SYS_pread64, constants().descriptor, chosen.twin, spliced, 0);
    verify_range(w, pages);
    return;
  }
  if (!main.ok()) fail(w, "%s ends with errno %d", way == 0 ? "write to a pipe" : "vmsplice", main.error);
  drain_pipe(w, way == 0 ? "write to a pipe" : "vmsplice", chosen.twin, static_cast<std::size_t>(main.value));
}

void transfer_directly(world& w) {
  range pages;
  if (constants().direct < 0 || !pick_writable_range(w, pages)) return;
  const part chosen = any_part(w, pages, buffer_bytes, page_bytes);
  const long offset = static_cast<long>(w.random.below(8) * page_bytes);
  const int file = constants().direct;
  say(w, "%zu bytes at %p", chosen.bytes, static_cast<void*>(chosen.main));
  const outcome main = library_call([&] { return ::pread(file, chosen.main, chosen.bytes, offset); });
  const outcome twin = kernel_call(SYS_pread64, file, chosen.twin, chosen.bytes, offset);
  must_transfer_alike(w, "pread with O_DIRECT", main, twin);
  verify_range(w, pages);
}

void read_own_process(world& w) {
  range pages;
  if (!pick_range(w, pages) || any_hole(pages) || any_maybe_free(pages)) return;
  const part chosen = any_part(w, pages, buffer_bytes, 1);
  const iovec to = {buffer(), chosen.bytes};
  const iovec of_main = {chosen.main, chosen.bytes};
  const iovec of_twin = {chosen.twin, chosen.bytes};
  const pid_t self = ::getpid();
  say(w, "%zu bytes at %p", chosen.bytes, static_cast<void*>(chosen.main));
  const outcome twin = kernel_call(SYS_process_vm_readv, self, &to, 1, &of_twin, 1, 0);
  const outcome main = library_call([&] { return ::process_vm_readv(self, &to, 1, &of_main, 1, 0); });
  must_transfer_alike(w, "process_vm_readv", main, twin);
  if (main.ok()) verify_copy(w, "process_vm_readv", buffer(), chosen.twin, static_cast<std::size_t>(main.value));
}

}  // namespace memory_calls
