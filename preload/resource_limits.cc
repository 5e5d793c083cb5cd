#include "preload/resource_limits.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>

#include "base/units.h"
#include "far/detail/api.h"
#include "platform/program_limits.h"
#include "platform/runtime_thread.h"
#include "preload/allocator.h"
#include "preload/direct_calls.h"
#include "preload/far_ranges.h"
#include "preload/in_runtime.h"
#include "preload/process_identity.h"
#include "preload/process_transfers.h"
#include "preload/program_memory.h"
#include "preload/runtime.h"
#include "preload/small_file.h"

namespace far::preload {
namespace {

// Static arrays, which the kernel counts as well.
std::uint64_t counted_by_kernel_bytes = 0;

// What the kernel counts against limits; nothing if that cannot be found out.
platform::own_memory read_size() {
  constexpr int number_of_data = 5;  // the field of /proc/self/statm
  char text[128];
  read_text("/proc/self/statm", text);
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

// ---- the child of a vfork ----
//
// The kernel keeps limits of its own for it, but it runs on its parent's memory, where the program's are. So those that
// it sets are kept here, on the thread of its parent that waits for it, until it becomes another program.

constexpr int limited_kinds[] = {RLIMIT_AS, RLIMIT_DATA};

struct child_limits {
  pid_t process = 0;
  std::uint64_t started = 0;  // numbers of processes are used again
  std::optional<rlimit> limits[std::size(limited_kinds)];
};
constinit thread_local child_limits newest_child;

// The place of a limit of this process, which is the child of a vfork.
std::optional<rlimit>& limit_of_child(int kind) {
  return newest_child.limits[kind == limited_kinds[0] ? 0 : 1];
}

bool is_newest_child() {
  return newest_child.process == getpid() && newest_child.started == start_time_of_this_process();
}

void set_limit_of_child(int kind, const rlimit& wanted) {
  if (!is_newest_child()) newest_child = {getpid(), start_time_of_this_process(), {}};
  limit_of_child(kind) = wanted;
}

// ---- the program's calls ----

// Limits that another process has given to this one (prlimit) become the program's.
void adopt_limits() {
  in_runtime(platform::adopt_limits_from_outside);
}

int set_own_limit(int kind, const rlimit& wanted, const rlimit& before) {
  if (wanted.rlim_cur > wanted.rlim_max) return fail(EINVAL);
  if (wanted.rlim_max > before.rlim_max && !platform::may_raise_limits()) return fail(EPERM);
  in_runtime([&] {
    if (!in_borrowed_memory()) return platform::set_program_limit(kind, wanted);
    watch_exec();
    set_limit_of_child(kind, wanted);
  });
  if (!in_borrowed_memory()) give_back_under_limit();
  return 0;
}

// By any of its names.
int call_by_name(pid_t process, int kind, const rlimit* wanted, rlimit* before) {
  if (is_own_limit(process, kind)) return change_limit(kind, wanted, before);
  return static_cast<int>(syscall(SYS_prlimit64, process, kind, wanted, before));
}

}  // namespace

void measure_start() noexcept {
  platform::know_kernel_limits();
  size_at_start = read_size();
  noted_at_start = platform::noted_own_memory();
}

void serve_limits(pager::pager& pager) noexcept {
  platform::note_other_own_memory(read_size() - size_at_start - (platform::noted_own_memory() - noted_at_start));
  counted_by_kernel_bytes = pager.mapped_bytes();
  platform::take_limits_from_kernel();
  platform::call_when_limited(watch_exec);
  give_back_under_limit();
}

void give_back_under_limit() noexcept {
  if (platform::program_limit(RLIMIT_AS) || platform::program_limit(RLIMIT_DATA)) give_back_addresses();
}

std::optional<rlimit> limit_in_effect(int kind) noexcept {
  if (in_borrowed_memory() && is_newest_child() && limit_of_child(kind)) return limit_of_child(kind);
  return platform::program_limit(kind);
}

bool limits_differ() noexcept {
  if (active_pager() == nullptr || platform::on_runtime_thread()) return false;
  return limit_in_effect(RLIMIT_AS) || limit_in_effect(RLIMIT_DATA);
}

bool limits_before_exec() noexcept {
  if (!limits_differ()) return false;
  const int saved_errno = errno;
  adopt_limits();
  in_runtime([] { platform::begin_exec(); });
  for (const int kind : limited_kinds) {
    const std::optional<rlimit> meant = limit_in_effect(kind);
    if (meant) in_runtime([&] { platform::give_limit_to_kernel(kind, *meant); });
  }
  errno = saved_errno;
  return true;
}

void limits_after_exec() noexcept {
  const int saved_errno = errno;
  for (const int kind : limited_kinds) {
    const std::optional<rlimit> meant = limit_in_effect(kind);
    if (meant) in_runtime([&] { platform::take_limit_from_kernel(kind, *meant); });
  }
  in_runtime([] { platform::end_exec(); });
  errno = saved_errno;
}

bool is_own_limit(pid_t process, int kind) noexcept {
  if ((kind != RLIMIT_AS && kind != RLIMIT_DATA) || active_pager() == nullptr || platform::on_runtime_thread())
    return false;
  const int saved_errno = errno;
  const bool own = process == 0 || is_of_this_process(process);
  errno = saved_errno;
  return own;
}

// With copies, since the program's structures may be far.
int change_limit(int kind, const rlimit* wanted, rlimit* before) noexcept {
  const std::optional<rlimit> asked = wanted != nullptr ? load(wanted) : std::nullopt;
  if (wanted != nullptr && !asked) return fail(EFAULT);
  adopt_limits();
  rlimit now{};
  const std::optional<rlimit> set = limit_in_effect(kind);
  if (set) now = *set;
  if (!set && in_runtime([&] { return syscall(SYS_prlimit64, 0, kind, nullptr, &now); }) != 0) return -1;
  if (asked && set_own_limit(kind, *asked, now) != 0) return -1;
  return before == nullptr || store(before, now) ? 0 : fail(EFAULT);
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
