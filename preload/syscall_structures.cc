#include "preload/syscall_structures.h"

#include <linux/bpf.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/fsmap.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <linux/userfaultfd.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <tuple>

#include "base/units.h"
#include "preload/syscall_stubs.h"

namespace far::preload {
namespace {

// None: it is no socket.
std::optional<int> type_of_socket(long descriptor) {
  int type = 0;
  socklen_t bytes = sizeof type;
  const long failure = far_raw_syscall(SYS_getsockopt, descriptor, SOL_SOCKET, SO_TYPE, reinterpret_cast<long>(&type),
                                       reinterpret_cast<long>(&bytes));
  return failure == 0 ? std::optional(type) : std::nullopt;
}

bool is_terminal(dev_t device) {
  constexpr unsigned console = 4;
  constexpr unsigned own_terminal = 5;
  constexpr unsigned first_pseudo_terminal = 136;
  constexpr unsigned last_pseudo_terminal = 143;
  const unsigned kind = gnu_dev_major(device);
  return kind == console || kind == own_terminal || (kind >= first_pseudo_terminal && kind <= last_pseudo_terminal);
}

// Memory (null, zero, random) and terminals give and take any number of bytes.
bool is_stream_device(dev_t device) {
  constexpr unsigned memory = 1;
  return gnu_dev_major(device) == memory || is_terminal(device);
}

// Whether a read takes what it returns before it knows that it can: messages, events (of eventfd, timerfd, signalfd,
// inotify, which are no kind of file), and lines that are typed.
bool takes_first(long descriptor) {
  if (const std::optional<int> type = type_of_socket(descriptor)) return *type != SOCK_STREAM;
  struct stat about{};
  if (far_raw_syscall(SYS_fstat, descriptor, reinterpret_cast<long>(&about)) != 0) return false;
  return (about.st_mode & S_IFMT) == 0 || (S_ISCHR(about.st_mode) && is_terminal(about.st_rdev));
}

constexpr std::size_t guessed_bytes = 64 * kib;  // of memory that a structure leads to, with an unknown length
constexpr std::size_t most_structure_bytes = std::tuple_size_v<memory_parts> * sizeof(std::uintptr_t);

// How much of the structure of an ioctl may be pointers. Most requests say how large theirs is; those that do not are
// of terminals, files and sockets, which have none, but for some.
std::size_t pointer_bytes(unsigned request) {
  constexpr std::size_t least_bytes = 16;
  constexpr unsigned wireless = 0x8b;
  constexpr unsigned generic_scsi = 0x2285;  // SG_IO
  constexpr std::size_t generic_scsi_bytes = 88;
  if (request == SIOCETHTOOL || request >> 8 == wireless) return sizeof(ifreq);
  if (request == generic_scsi) return generic_scsi_bytes;
  const std::size_t bytes = std::min<std::size_t>(_IOC_SIZE(request), most_structure_bytes);
  return bytes >= least_bytes ? bytes : 0;
}

struct leading_structure {
  const std::byte* address;
  std::size_t bytes;
};

leading_structure structure_of(long number, const std::array<long, 6>& arguments) {
  const auto at = [&arguments](std::size_t index) { return reinterpret_cast<const std::byte*>(arguments[index]); };
  switch (number) {
    case SYS_ioctl: return {at(2), pointer_bytes(static_cast<unsigned>(arguments[1]))};
    case SYS_bpf: return {at(1), std::min(static_cast<std::size_t>(arguments[2]), most_structure_bytes)};
    case SYS_ptrace: {
      const bool is_of_registers = arguments[0] == PTRACE_GETREGSET || arguments[0] == PTRACE_SETREGSET;
      return {at(3), is_of_registers ? sizeof(iovec) : 0};
    }
    case SYS_getsockopt: {
      const bool receives = arguments[1] == IPPROTO_TCP && arguments[2] == TCP_ZEROCOPY_RECEIVE;
      return {at(3), receives ? sizeof(tcp_zerocopy_receive) : 0};
    }
    case 463 /* setxattrat */:
    case 464 /* getxattrat */: return {at(4), 16};
    case SYS_pselect6: return {at(5), sizeof(std::uintptr_t)};  // the mask, and its size
    case SYS_prctl: {
      const bool moves_parts = arguments[0] == PR_SET_MM && arguments[1] == PR_SET_MM_MAP;
      return {at(2), moves_parts ? sizeof(prctl_mm_map) : 0};
    }
    default: return {nullptr, 0};
  }
}

// The parts that may be longer than we guess.
void lengthen(long number, const std::array<long, 6>& arguments, const leading_structure& structure,
              memory_parts& parts) {
  const auto lengthen = [&](std::size_t pointer_at, std::size_t bytes) {
    memory_part& part = parts[pointer_at / sizeof(std::uintptr_t)];
    part.bytes = std::max(part.bytes, bytes);
  };
  if (number == SYS_ioctl && static_cast<unsigned>(arguments[1]) == UFFDIO_COPY) {
    uffdio_copy copy{};
    std::memcpy(&copy, structure.address, std::min(structure.bytes, sizeof copy));
    lengthen(offsetof(uffdio_copy, src), copy.len);
  }
  if (number != SYS_bpf) return;
  bpf_attr given{};
  std::memcpy(&given, structure.address, std::min(structure.bytes, sizeof given));
  if (arguments[0] == BPF_PROG_LOAD) {
    lengthen(offsetof(bpf_attr, insns), given.insn_cnt * sizeof(bpf_insn));
    lengthen(offsetof(bpf_attr, log_buf), given.log_size);
  }
  if (arguments[0] == BPF_BTF_LOAD) {
    lengthen(offsetof(bpf_attr, btf), given.btf_size);
    lengthen(offsetof(bpf_attr, btf_log_buf), given.btf_log_size);
  }
}

}  // namespace

bool keeps_messages(long descriptor) noexcept {
  if (const std::optional<int> type = type_of_socket(descriptor)) return *type != SOCK_STREAM;
  struct stat about{};
  return far_raw_syscall(SYS_fstat, descriptor, reinterpret_cast<long>(&about)) == 0 && S_ISCHR(about.st_mode) &&
         !is_stream_device(about.st_rdev);
}

bool is_repeatable(long number, const std::array<long, 6>& given) noexcept {
  switch (number) {
    case SYS_read:
    case SYS_readv:
    case SYS_preadv2:  // at the current position
    case SYS_recvfrom: return !takes_first(given[0]);
    case SYS_sendfile:
    case SYS_splice:
    case SYS_sendmmsg:
    case SYS_mq_timedreceive:
    case SYS_rt_sigtimedwait:
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

bool has_parts(long number, const std::array<long, 6>& arguments) noexcept {
  return structure_of(number, arguments).bytes > 0;
}

memory_parts parts_of(long number, const std::array<long, 6>& arguments) noexcept {
  memory_parts parts{};
  const leading_structure structure = structure_of(number, arguments);
  const std::size_t words = structure.bytes / sizeof(std::uintptr_t);
  if (words == 0 || structure.address == nullptr || !is_readable(structure.address, structure.bytes)) return parts;
  for (std::size_t i = 0; i < words; ++i) {
    std::uintptr_t word = 0;
    std::memcpy(&word, structure.address + i * sizeof word, sizeof word);
    parts[i] = {reinterpret_cast<std::byte*>(word), guessed_bytes};
  }
  lengthen(number, arguments, structure, parts);
  return parts;
}

std::size_t structure_bytes(unsigned request, const std::byte* structure) noexcept {
  const auto with = [](std::size_t head_bytes, std::optional<__u32> count, std::size_t bytes) {
    constexpr std::size_t most_bytes = gib;  // more than the kernel takes
    return count ? head_bytes + std::min(*count * bytes, most_bytes) : head_bytes;
  };
  const auto number_at = [structure](std::size_t offset) {
    return copy_of(reinterpret_cast<const __u32*>(structure + offset));
  };
  constexpr unsigned device_mapper = 0xfd;
  constexpr std::size_t length_of_data = 12;  // where a dm_ioctl has its data_size
  if (_IOC_TYPE(request) == device_mapper) return with(0, number_at(length_of_data), 1);
  switch (request) {
    case FS_IOC_FIEMAP:
      return with(sizeof(fiemap), number_at(offsetof(fiemap, fm_extent_count)), sizeof(fiemap_extent));
    case FS_IOC_GETFSMAP: return with(sizeof(fsmap_head), number_at(offsetof(fsmap_head, fmh_count)), sizeof(fsmap));
    case FIDEDUPERANGE: return page_bytes;  // the most that the kernel takes
    default: return _IOC_SIZE(request);
  }
}

// With no place for the list, the kernel says how much it takes.
std::size_t interface_bytes(long descriptor) noexcept {
  constexpr std::size_t more_interfaces = 64;
  ifconf nowhere{};
  if (!type_of_socket(descriptor)) return 0;
  const long failure = far_raw_syscall(SYS_ioctl, descriptor, SIOCGIFCONF, reinterpret_cast<long>(&nowhere));
  return failure != 0 ? 0 : static_cast<std::size_t>(nowhere.ifc_len) + more_interfaces * sizeof(ifreq);
}

}  // namespace far::preload
