#include "preload/resource_limits.h"

#include <dlfcn.h>
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

int set_own_limit(int kind, const rlimit& wanted, const rlimit& before) {
  if (wanted.rlim_cur > wanted.rlim_max) return fail(EINVAL);
  if (wanted.rlim_max > before.rlim_max && !platform::may_raise_limits()) return fail(EPERM);
  in_runtime([&] { platform::set_program_limit(kind, wanted); });
  return 0;
}

// What the kernel counts against limits; nothing if that cannot be found out.
platform::own_memory read_size() {
  constexpr int number_of_data = 5;  // the field of /proc/self/statm
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  char text[128];
  const ssize_t got = read(file, text, sizeof text - 1);
  close(file);
  text[std::max<ssize_t>(got, 0)] = 0;
  platform::own_memory size;
  char* rest = text;
  for (int field = 0; field <= number_of_data; ++field) {
    const auto bytes = static_cast<std::int64_t>(std::strtoull(rest, &rest, 10) * page_bytes);
    if (field == 0) size.address_bytes = bytes;
    if (field == number_of_data) size.data_bytes = bytes;
  }
  return size;
}

platform::own_memory operator-(const platform::own_memory& a, const platform::own_memory& b) {
  return {a.address_bytes - b.address_bytes, a.data_bytes - b.data_bytes};
}

// Before the runtime has mapped anything.
platform::own_memory size_at_start;
platform::own_memory noted_at_start;

std::uint64_t program_address_bytes(const pager::pager& far) {
  const auto native = static_cast<std::uint64_t>(read_size().address_bytes);
  const std::uint64_t own = platform::own_address_bytes();
  return (native > own ? native - own : 0) + far.mapped_bytes() - counted_by_kernel_bytes;
}

bool any_limit_is_set() {
  return platform::program_limit(RLIMIT_AS) || platform::program_limit(RLIMIT_DATA);
}

// The program's call, by any of its names.
int call_by_name(pid_t process, int kind, const rlimit* wanted, rlimit* before) {
  if (is_own_limit(process, kind)) return change_limit(kind, wanted, before);
  using function = int (*)(pid_t, int, const rlimit*, rlimit*);
  static const auto next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "prlimit64"));
  return next(process, kind, wanted, before);
}

}  // namespace

void measure_start() noexcept {
  size_at_start = read_size();
  noted_at_start = platform::noted_own_memory();
}

void serve_limits(pager::pager& pager) noexcept {
  platform::note_other_own_memory(read_size() - size_at_start - (platform::noted_own_memory() - noted_at_start));
  counted_by_kernel_bytes = pager.mapped_bytes();
  platform::take_limits_from_kernel();
}

void limits_before_exec() noexcept {
  if (any_limit_is_set()) in_runtime([] { platform::give_limits_to_kernel(); });
}

void limits_after_exec() noexcept {
  if (!any_limit_is_set()) return;
  const int saved_errno = errno;
  in_runtime([] { platform::take_limits_from_kernel(); });
  errno = saved_errno;
}

bool is_own_limit(pid_t process, int kind) noexcept {
  if ((kind != RLIMIT_AS && kind != RLIMIT_DATA) || active_pager() == nullptr || platform::on_runtime_thread())
    return false;
  // The child of a vfork has limits of its own, and the memory of its parent: it is about to become another program.
  return (process == 0 || process == getpid()) && !in_borrowed_memory();
}

// With copies, since the program's structures may be far.
int change_limit(int kind, const rlimit* wanted, rlimit* before) noexcept {
  rlimit now{};
  const std::optional<rlimit> set = platform::program_limit(kind);
  if (set) now = *set;
  if (!set && in_runtime([&] { return syscall(SYS_prlimit64, 0, kind, nullptr, &now); }) != 0) return -1;
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
  return far::preload::call_by_name(0, static_cast<int>(kind), wanted, nullptr);
}
FAR_API int setrlimit64(__rlimit_resource_t kind, const rlimit64* wanted) noexcept {
  return far::preload::call_by_name(0, static_cast<int>(kind), reinterpret_cast<const rlimit*>(wanted), nullptr);
}
FAR_API int getrlimit(__rlimit_resource_t kind, rlimit* now) noexcept {
  return far::preload::call_by_name(0, static_cast<int>(kind), nullptr, now);
}
FAR_API int getrlimit64(__rlimit_resource_t kind, rlimit64* now) noexcept {
  return far::preload::call_by_name(0, static_cast<int>(kind), nullptr, reinterpret_cast<rlimit*>(now));
}
FAR_API int prlimit(pid_t process, __rlimit_resource kind, const rlimit* wanted, rlimit* before) noexcept {
  return far::preload::call_by_name(process, static_cast<int>(kind), wanted, before);
}
FAR_API int prlimit64(pid_t process, __rlimit_resource kind, const rlimit64* wanted, rlimit64* before) noexcept {
  return far::preload::call_by_name(process, static_cast<int>(kind), reinterpret_cast<const rlimit*>(wanted),
                                    reinterpret_cast<rlimit*>(before));
}

}  // extern "C"
