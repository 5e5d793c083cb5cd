#include "preload/limits.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "base/units.h"
#include "far/detail/api.h"
#include "platform/program_limits.h"
#include "platform/runtime_thread.h"
#include "preload/far_ranges.h"
#include "preload/in_runtime.h"
#include "preload/runtime.h"

namespace far::preload {
namespace {

// Static arrays, which the kernel counts as well.
std::uint64_t counted_by_kernel_bytes = 0;

int ask_kernel(pid_t process, int kind, const rlimit* wanted, rlimit* before) {
  return static_cast<int>(syscall(SYS_prlimit64, process, kind, wanted, before));
}

bool is_apart(pid_t process, int kind) {
  const bool ours = process == 0 || process == getpid();
  // The child of a vfork has limits of its own, and the memory of its parent: it is about to become another program.
  return ours && (kind == RLIMIT_AS || kind == RLIMIT_DATA) && active_pager() != nullptr &&
         !platform::on_runtime_thread() && !in_borrowed_memory();
}

int set_own_limit(int kind, const rlimit& wanted, const rlimit& before) {
  if (wanted.rlim_cur > wanted.rlim_max) return fail(EINVAL);
  if (wanted.rlim_max > before.rlim_max && !platform::may_raise_limits()) return fail(EPERM);
  in_runtime([&] { platform::set_program_limit(kind, wanted); });
  return 0;
}

// All addresses of the process, as its limit counts them; 0 if that cannot be found out.
std::uint64_t address_bytes() {
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[128];
  const ssize_t got = read(file, text, sizeof text - 1);
  close(file);
  text[std::max<ssize_t>(got, 0)] = 0;
  return std::strtoull(text, nullptr, 10) * page_bytes;
}

std::uint64_t program_address_bytes(const pager::pager& far) {
  const std::uint64_t native = address_bytes();
  const std::uint64_t own = platform::own_address_bytes();
  return (native > own ? native - own : 0) + far.mapped_bytes() - counted_by_kernel_bytes;
}

}  // namespace

void serve_limits(pager::pager& pager) noexcept {
  counted_by_kernel_bytes = pager.mapped_bytes();
  platform::take_limits_from_kernel();
}

int change_limit(pid_t process, int kind, const rlimit* wanted, rlimit* before) noexcept {
  if (!is_apart(process, kind)) return ask_kernel(process, kind, wanted, before);
  // Copies: the program's structures may be far.
  rlimit now{};
  const std::optional<rlimit> set = platform::program_limit(kind);
  if (set) now = *set;
  if (!set && ask_kernel(0, kind, nullptr, &now) != 0) return -1;
  if (wanted != nullptr) {
    const rlimit copy = *wanted;
    if (set_own_limit(kind, copy, now) != 0) return -1;
  }
  if (before != nullptr) *before = now;
  return 0;
}

bool has_addresses_for(std::size_t more_bytes) noexcept {
  const std::optional<rlimit> limit = platform::program_limit(RLIMIT_AS);
  if (!limit || limit->rlim_cur == RLIM_INFINITY) return true;
  const int saved_errno = errno;
  const std::uint64_t used = in_runtime([] { return program_address_bytes(*active_pager()); });
  const bool fits = used <= limit->rlim_cur && more_bytes <= limit->rlim_cur - used;
  errno = fits ? saved_errno : ENOMEM;
  return fits;
}

}  // namespace far::preload

extern "C" {

// `rlimit` has 64 bits on the machines that we run on, as `rlimit64` has everywhere.
FAR_API int setrlimit(__rlimit_resource_t kind, const rlimit* wanted) noexcept {
  return far::preload::change_limit(0, static_cast<int>(kind), wanted, nullptr);
}
FAR_API int setrlimit64(__rlimit_resource_t kind, const rlimit64* wanted) noexcept {
  return far::preload::change_limit(0, static_cast<int>(kind), reinterpret_cast<const rlimit*>(wanted), nullptr);
}
FAR_API int getrlimit(__rlimit_resource_t kind, rlimit* now) noexcept {
  return far::preload::change_limit(0, static_cast<int>(kind), nullptr, now);
}
FAR_API int getrlimit64(__rlimit_resource_t kind, rlimit64* now) noexcept {
  return far::preload::change_limit(0, static_cast<int>(kind), nullptr, reinterpret_cast<rlimit*>(now));
}
FAR_API int prlimit(pid_t process, __rlimit_resource_t kind, const rlimit* wanted, rlimit* before) noexcept {
  return far::preload::change_limit(process, static_cast<int>(kind), wanted, before);
}
FAR_API int prlimit64(pid_t process, __rlimit_resource_t kind, const rlimit64* wanted, rlimit64* before) noexcept {
  return far::preload::change_limit(process, static_cast<int>(kind), reinterpret_cast<const rlimit*>(wanted),
                                    reinterpret_cast<rlimit*>(before));
}

}  // extern "C"
