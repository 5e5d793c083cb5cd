#include "preload/fault_mode_choice.h"

#include <cerrno>
#include <string>

namespace far::preload {
namespace {

using pager::fault_mode;

constexpr const char* no_permission =
    "no permission for userfaultfd; run `sysctl vm.unprivileged_userfaultfd=1`, or run as root, or grant "
    "CAP_SYS_PTRACE, or allow access to /dev/userfaultfd";
constexpr const char* no_kernel_faults =
    "no permission to serve the faults of system calls; run `sysctl vm.unprivileged_userfaultfd=1`, or run as root, or "
    "grant CAP_SYS_PTRACE, or allow access to /dev/userfaultfd";
constexpr const char* no_sigbus = "this kernel has no UFFD_FEATURE_SIGBUS; use --fault-mode thread";
constexpr const char* no_dispatch =
    "no system call user dispatch here (Linux 5.11 or later on x86-64 has it, unless a container forbids it); use "
    "--fault-mode thread";

constexpr const char* writes_of_devices =
    "this kernel takes pages away while devices write to them (it has no UFFDIO_MOVE, as Linux 6.8 has, or no /proc is "
    "mounted), and in the "
    "thread mode such uses are not seen: O_DIRECT, io_uring, libaio and RDMA must not write to far memory, or their "
    "data is lost; use --fault-mode inline, where they are safe or refused";

// Why a mode cannot be used, or null.
const char* obstacle(const platform::kernel_features& features, fault_mode mode) {
  if (mode == fault_mode::thread) return features.userfaultfd_kernel_faults ? nullptr : no_kernel_faults;
  if (!features.sigbus) return no_sigbus;
  return features.syscall_user_dispatch ? nullptr : no_dispatch;
}

}  // namespace

// Features that no mode can do without are asked for first. The other mode is a fallback also for a mode that was asked
// for: a program in the wrong mode is better than one that does not start, and the caller says why.
result<fault_mode_choice> choose_fault_mode(const platform::kernel_features& features,
                                            std::optional<fault_mode> asked) {
  if (!features.userfaultfd && features.userfaultfd_error_code == ENOSYS) {
    return error{"this kernel has no userfaultfd; use one built with CONFIG_USERFAULTFD (see `farheap doctor`)",
                 ENOSYS};
  }
  if (!features.userfaultfd) return error{no_permission, EPERM};
  if (!features.move && !features.write_protect) {
    return error{"this kernel has neither UFFDIO_MOVE nor UFFDIO_WRITEPROTECT; use Linux 5.7 or later", ENOSYS};
  }
  // Without pagemap pages are not moved, either (far_address_space).
  const bool devices_are_safe = features.move && features.pagemap;
  const bool has_inline = obstacle(features, fault_mode::in_line) == nullptr;
  const fault_mode wanted = asked.value_or(has_inline ? fault_mode::in_line : fault_mode::thread);
  const auto risk_of = [&](fault_mode mode) {
    return mode == fault_mode::thread && !devices_are_safe ? writes_of_devices : nullptr;
  };
  const fault_mode other = wanted == fault_mode::thread ? fault_mode::in_line : fault_mode::thread;
  const char* const wrong = obstacle(features, wanted);
  if (wrong == nullptr) return fault_mode_choice{wanted, nullptr, risk_of(wanted)};
  if (obstacle(features, other) == nullptr) return fault_mode_choice{other, wrong, risk_of(other)};
  return error{wrong, EPERM};
}

}  // namespace far::preload
