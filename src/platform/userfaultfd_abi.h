// The parts of the kernel's userfaultfd interface that the headers of Debian 12 (Linux 6.1) do not know yet. The values
// are the kernel's ABI, see userfaultfd(2) and ioctl_userfaultfd(2).
#pragma once

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <cstdint>

namespace far::platform::abi {

inline constexpr std::uint64_t uffd_feature_move = 1u << 16;

// UFFDIO_MOVE, since Linux 6.8.
struct uffdio_move {
  std::uint64_t dst;
  std::uint64_t src;
  std::uint64_t len;
  std::uint64_t mode;
  std::int64_t move;  // out: bytes moved, or a negated errno value
};
inline constexpr unsigned long uffdio_move_request = _IOWR(UFFDIO, 0x05, uffdio_move);

// Since Linux 5.11: handle only faults of user mode; ordinary users may ask for it.
#ifdef UFFD_USER_MODE_ONLY
inline constexpr int uffd_user_mode_only = UFFD_USER_MODE_ONLY;
#else
inline constexpr int uffd_user_mode_only = 1;
#endif

// /dev/userfaultfd, since Linux 6.1.
inline constexpr unsigned long userfaultfd_ioc_new = _IO(0xAA, 0x00);

}  // namespace far::platform::abi
