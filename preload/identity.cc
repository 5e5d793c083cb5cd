// The functions by which a thread changes its own rights or namespaces alone. The runtime's threads follow, or step
// aside, so that the program does not notice them (platform/thread_identity.h).
#include "preload/identity.h"

#include <linux/capability.h>
#include <linux/prctl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "base/log.h"
#include "far/detail/api.h"
#include "platform/page_merging.h"
#include "platform/runtime_thread.h"
#include "platform/thread_identity.h"
#include "preload/kernel_calls.h"
#include "preload/memory_calls.h"
#include "preload/next_function.h"
#include "preload/restricted_program.h"
#include "preload/runtime.h"

namespace {

// As in linux/prctl.h, which older systems have without them.
constexpr long set_memory_merge = 67;
constexpr long get_memory_merge = 68;

bool changes_rights(int option) {
  switch (option) {
    case PR_SET_KEEPCAPS:
    case PR_SET_SECUREBITS:
    case PR_CAPBSET_DROP:
    case PR_CAP_AMBIENT:
    case PR_SET_NO_NEW_PRIVS: return true;
    default: return false;
  }
}

void mirror(long number, long first, long second, long third = 0, long fourth = 0, long fifth = 0) {
  if (far::preload::active_pager() == nullptr || far::platform::on_runtime_thread()) return;
  const far::platform::runtime_section section;
  if (far::platform::mirror_on_runtime_threads(number, first, second, third, fourth, fifth)) return;
  far::log_line(far::log_level::warning,
                "a thread of the runtime did not take over a change of rights; the next setuid may end the program");
}

}  // namespace

namespace far::preload {

void leave_folders_to_program() noexcept {
  mirror(SYS_unshare, CLONE_FS, 0);
}

namespace {

bool serve_page_merging(long option, const std::array<unsigned long, 4>& rest, long* result) noexcept {
  const bool sets = option == set_memory_merge;
  if ((!sets && option != get_memory_merge) || active_pager() == nullptr || platform::on_runtime_thread()) return false;
  // The kernel is to say whether it can do this, and whether the call is right.
  const bool is_right = rest[1] == 0 && rest[2] == 0 && rest[3] == 0 && (sets || rest[0] == 0);
  const int saved_errno = errno;
  const bool is_known = is_right && syscall(SYS_prctl, get_memory_merge, 0, 0, 0, 0) >= 0;
  errno = saved_errno;
  if (!is_known) return false;
  if (sets) platform::want_page_merging(rest[0] != 0);
  *result = sets || !platform::wants_page_merging() ? 0 : 1;
  return true;
}

}  // namespace

bool serve_request(long option, const std::array<unsigned long, 4>& rest, long* result) noexcept {
  if (option != change_mapping || rest[0] != name_of_mapping) return serve_page_merging(option, rest, result);
  if (active_pager() == nullptr || platform::on_runtime_thread()) return false;
  const int saved_errno = errno;
  *result = give_name(reinterpret_cast<void*>(rest[1]), rest[2], reinterpret_cast<const char*>(rest[3]));
  if (*result != 0) *result = -errno;
  errno = saved_errno;
  return true;
}

}  // namespace far::preload

extern "C" {

FAR_API int setns(int descriptor, int kinds) noexcept {
  const auto next = far::preload::next<"setns", int (*)(int, int)>();
  far::preload::leave_folders_to_program();
  return next(descriptor, kinds);
}

FAR_API int prctl(int option, ...) {
  const auto next = far::preload::next<"prctl", int (*)(int, ...)>();
  std::va_list rest;
  va_start(rest, option);
  const auto second = va_arg(rest, unsigned long);
  const auto third = va_arg(rest, unsigned long);
  const auto fourth = va_arg(rest, unsigned long);
  const auto fifth = va_arg(rest, unsigned long);
  va_end(rest);
  long served = 0;
  if (far::preload::serve_request(option, {second, third, fourth, fifth}, &served)) {
    if (served >= 0) return static_cast<int>(served);
    errno = static_cast<int>(-served);
    return -1;
  }
  if (far::preload::restricts_calls(SYS_prctl, option)) far::preload::note_restriction();
  const int result = next(option, second, third, fourth, fifth);
  if (result == 0 && changes_rights(option)) {
    mirror(SYS_prctl, option, static_cast<long>(second), static_cast<long>(third), static_cast<long>(fourth),
           static_cast<long>(fifth));
  }
  return result;
}

FAR_API int capset(__user_cap_header_struct* header, const __user_cap_data_struct* data) {
  const auto next = far::preload::next<"capset", int (*)(__user_cap_header_struct*, const __user_cap_data_struct*)>();
  const int result = next(header, data);
  if (result != 0 || data == nullptr) return result;
  // Copies: the program's may be far, and the kernel writes to the header. The first version had one element.
  __user_cap_header_struct target{.version = header->version, .pid = 0};
  __user_cap_data_struct rights[_LINUX_CAPABILITY_U32S_3] = {};
  const std::size_t elements = header->version == _LINUX_CAPABILITY_VERSION_1 ? 1 : _LINUX_CAPABILITY_U32S_3;
  std::memcpy(rights, data, elements * sizeof *data);
  mirror(SYS_capset, reinterpret_cast<long>(&target), reinterpret_cast<long>(rights));
  return result;
}

}  // extern "C"
