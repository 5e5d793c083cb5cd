#include "preload/syscall_structures.h"

#include <linux/seccomp.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

namespace far::preload {
namespace {

bool is_socket(long descriptor) {
  int type = 0;
  socklen_t bytes = sizeof type;
  return far_raw_syscall(SYS_getsockopt, descriptor, SOL_SOCKET, SO_TYPE, reinterpret_cast<long>(&type),
                         reinterpret_cast<long>(&bytes)) == 0;
}

}  // namespace

const sock_fprog* filter_of(long number, const std::array<long, 6>& arguments) noexcept {
  const auto at = [&arguments](std::size_t index) { return reinterpret_cast<const sock_fprog*>(arguments[index]); };
  switch (number) {
    case SYS_seccomp: return arguments[0] == SECCOMP_SET_MODE_FILTER ? at(2) : nullptr;
    case SYS_prctl: return arguments[0] == PR_SET_SECCOMP && arguments[1] == SECCOMP_MODE_FILTER ? at(2) : nullptr;
    case SYS_setsockopt: {
      const bool is_filter = arguments[2] == SO_ATTACH_FILTER || arguments[2] == SO_ATTACH_REUSEPORT_CBPF;
      return arguments[1] == SOL_SOCKET && is_filter ? at(3) : nullptr;
    }
    default: return nullptr;
  }
}

bool lists_interfaces(long number, const std::array<long, 6>& arguments) noexcept {
  return number == SYS_ioctl && arguments[1] == SIOCGIFCONF && arguments[2] != 0;
}

// With no place for the list, the kernel says how much it takes.
std::size_t interface_bytes(long descriptor) noexcept {
  constexpr std::size_t more_interfaces = 64;
  ifconf nowhere{};
  if (!is_socket(descriptor)) return 0;
  const long failure = far_raw_syscall(SYS_ioctl, descriptor, SIOCGIFCONF, reinterpret_cast<long>(&nowhere));
  return failure != 0 ? 0 : static_cast<std::size_t>(nowhere.ifc_len) + more_interfaces * sizeof(ifreq);
}

}  // namespace far::preload
