#include "preload/syscall_structures.h"

#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>

namespace far::preload {
namespace {

bool is_socket(long descriptor) {
  int type = 0;
  socklen_t bytes = sizeof type;
  return far_raw_syscall(SYS_getsockopt, descriptor, SOL_SOCKET, SO_TYPE, reinterpret_cast<long>(&type),
                         reinterpret_cast<long>(&bytes)) == 0;
}

// Memory (null, zero, random) and terminals give and take any number of bytes.
bool is_stream_device(dev_t device) {
  constexpr std::array<unsigned, 3> streams{1, 4, 5};
  constexpr unsigned first_terminal = 136;
  constexpr unsigned last_terminal = 143;
  const unsigned kind = gnu_dev_major(device);
  return std::find(streams.begin(), streams.end(), kind) != streams.end() ||
         (kind >= first_terminal && kind <= last_terminal);
}

// How much of the structure of an ioctl may be pointers. Most requests say how large theirs is; those that do not are
// of terminals, files and sockets, which have none, but for some.
std::size_t pointer_bytes(unsigned request) {
  constexpr std::size_t least_bytes = 16;
  constexpr unsigned wireless = 0x8b;
  constexpr unsigned generic_scsi = 0x2285;  // SG_IO
  constexpr std::size_t generic_scsi_bytes = 88;
  if (request == SIOCETHTOOL || request >> 8 == wireless) return sizeof(ifreq);
  if (request == generic_scsi) return generic_scsi_bytes;
  const std::size_t bytes = std::min<std::size_t>(_IOC_SIZE(request), sizeof(request_words));
  return bytes >= least_bytes ? bytes : 0;
}

}  // namespace

bool keeps_messages(long descriptor) noexcept {
  int type = SOCK_STREAM;
  socklen_t bytes = sizeof type;
  const long failure = far_raw_syscall(SYS_getsockopt, descriptor, SOL_SOCKET, SO_TYPE, reinterpret_cast<long>(&type),
                                       reinterpret_cast<long>(&bytes));
  if (failure == 0) return type != SOCK_STREAM;
  struct stat about{};
  return far_raw_syscall(SYS_fstat, descriptor, reinterpret_cast<long>(&about)) == 0 && S_ISCHR(about.st_mode) &&
         !is_stream_device(about.st_rdev);
}

bool is_repeatable(long number) noexcept {
  switch (number) {
    case SYS_accept:
    case SYS_accept4:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_msgrcv:
    case SYS_wait4:
    case SYS_waitid:
    case SYS_ioctl: return false;
    default: return true;
  }
}

bool goes_on(long number, const std::array<long, 6>& given) noexcept {
  switch (number) {
    case SYS_write:
    case SYS_pwrite64: return true;
    case SYS_sendto: return given[4] == 0;
    case SYS_recvfrom: return (given[3] & (MSG_WAITALL | MSG_PEEK)) == MSG_WAITALL;
    case SYS_read:
    case SYS_pread64: {
      struct stat about{};
      return far_raw_syscall(SYS_fstat, given[0], reinterpret_cast<long>(&about)) == 0 && S_ISREG(about.st_mode);
    }
    default: return false;
  }
}

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

request_words words_of(const std::array<long, 6>& arguments) noexcept {
  request_words words{};
  const iovec to{words.data(), pointer_bytes(static_cast<unsigned>(arguments[1]))};
  if (to.iov_len == 0 || arguments[2] == 0) return words;
  const iovec from{reinterpret_cast<void*>(arguments[2]), to.iov_len};
  far_raw_syscall(SYS_process_vm_readv, far_raw_syscall(SYS_getpid), reinterpret_cast<long>(&to), 1,
                  reinterpret_cast<long>(&from), 1, 0);
  return words;
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
