// The functions by which a thread changes its own rights alone. The runtime's threads follow, so that the program does
// not notice them (platform/thread_identity.h).
#include <dlfcn.h>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstring>

#include "base/log.h"
#include "far/detail/api.h"
#include "platform/runtime_thread.h"
#include "platform/thread_identity.h"
#include "preload/restricted_program.h"
#include "preload/runtime.h"

namespace {

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

extern "C" {

FAR_API int prctl(int option, ...) {
  using function = int (*)(int, ...);
  static const auto next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "prctl"));
  std::va_list rest;
  va_start(rest, option);
  const auto second = va_arg(rest, unsigned long);
  const auto third = va_arg(rest, unsigned long);
  const auto fourth = va_arg(rest, unsigned long);
  const auto fifth = va_arg(rest, unsigned long);
  va_end(rest);
  if (far::preload::restricts_calls(SYS_prctl, option)) far::preload::note_restriction();
  const int result = next(option, second, third, fourth, fifth);
  if (result == 0 && changes_rights(option)) {
    mirror(SYS_prctl, option, static_cast<long>(second), static_cast<long>(third), static_cast<long>(fourth),
           static_cast<long>(fifth));
  }
  return result;
}

FAR_API int capset(__user_cap_header_struct* header, const __user_cap_data_struct* data) {
  using function = int (*)(__user_cap_header_struct*, const __user_cap_data_struct*);
  static const auto next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "capset"));
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
