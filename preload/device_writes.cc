#include "preload/device_writes.h"

#include <errno.h>  // for program_invocation_short_name
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/log.h"
#include "pager/far_pager.h"
#include "platform/kernel_features.h"
#include "preload/direct_calls.h"
#include "preload/runtime.h"
#include "preload/syscall_structures.h"

namespace far::preload {
namespace {

struct device_use {
  const char* name;
  long error;
};

// io_uring and libaio fail as on a kernel that was built without them, which programs are prepared for.
constexpr std::array uses{
    device_use{"io_uring", -ENOSYS}, device_use{"asynchronous I/O by io_setup (libaio)", -ENOSYS},
    device_use{"RDMA", -EPERM},      device_use{"VFIO and IOMMUFD", -EPERM},
    device_use{"AF_XDP", -EPERM},
};
constexpr int last_asynchronous = 1;
std::array<std::atomic<bool>, uses.size()> is_reported{};

constexpr unsigned long rdma_requests = 0x1b;         // RDMA_IOCTL_MAGIC
constexpr unsigned long vfio_map_dma = 0x3b71;        // VFIO_IOMMU_MAP_DMA
constexpr unsigned long iommufd_map_memory = 0x3b85;  // IOMMU_IOAS_MAP
constexpr int level_of_xdp = 283;                     // SOL_XDP
constexpr int xdp_register_memory = 4;                // XDP_UMEM_REG

// The index of the use that a call begins, or -1.
int use_of(long number, const std::array<long, 6>& arguments) noexcept {
  switch (number) {
    case SYS_io_uring_setup: return 0;
    case SYS_io_setup: return 1;
    case SYS_ioctl: {
      const auto request = static_cast<unsigned long>(arguments[1]) & 0xffffffff;
      if ((request >> 8 & 0xff) == rdma_requests) return 2;
      return request == vfio_map_dma || request == iommufd_map_memory ? 3 : -1;
    }
    case SYS_setsockopt: return arguments[1] == level_of_xdp && arguments[2] == xdp_register_memory ? 4 : -1;
    default: return -1;
  }
}

// Some children may not read which pages they have, which moves need: those of a process that has changed its user.
const char* reason_of_device_writes() noexcept {
  const platform::kernel_features& features = platform::probe_kernel();
  if (features.move && features.pagemap) {
    return "this process may not read its /proc/self/pagemap, so pages are taken away while devices write to them, and "
           "data would be lost; let it keep its user or its rights, or run the program without farheap";
  }
  return "this kernel takes pages away while devices write to them, and data would be lost; Linux 6.8 or later does "
         "not, or run the program without farheap";
}

constexpr unsigned long set_memory_of_machine = 0x4020ae46;          // KVM_SET_USER_MEMORY_REGION
constexpr unsigned long set_private_memory_of_machine = 0x40a0ae49;  // KVM_SET_USER_MEMORY_REGION2

// Of both, what they begin with.
struct memory_of_machine {
  std::uint32_t slot;
  std::uint32_t flags;
  std::uint64_t guest_address;
  std::uint64_t bytes;
  std::uint64_t address;
};

}  // namespace

constinit bool refuses_device_writes = false;

void look_out_for_device_writes() noexcept {
  const platform::kernel_features& features = platform::probe_kernel();
  refuses_device_writes = !features.move || !features.pagemap;
}

void look_out_for_device_writes_in_child() noexcept {
  const pager::pager* const pager = active_pager();
  if (pager == nullptr || static_cast<const pager::far_pager&>(*pager).moves_pages()) return;
  refuses_device_writes = true;
  watch_devices();
}

bool gives_far_memory_to_machine(const pager::pager& pager, long number,
                                 const std::array<long, 6>& arguments) noexcept {
  const auto request = static_cast<unsigned long>(arguments[1]) & 0xffffffff;
  if (number != SYS_ioctl || (request != set_memory_of_machine && request != set_private_memory_of_machine))
    return false;
  const auto given = copy_of(reinterpret_cast<const memory_of_machine*>(arguments[2]));
  return given && pager.overlaps(reinterpret_cast<const void*>(given->address), given->bytes);
}

long refuse_machine() noexcept {
  static std::atomic<bool> is_said{false};
  if (!is_said.exchange(true)) {
    log_line(log_level::warning,
             "process %d (%s) gives far memory to a virtual machine (KVM), which is refused: in the inline mode the "
             "kernel cannot fetch memory by itself; use --fault-mode thread",
             static_cast<int>(getpid()), program_invocation_short_name);
  }
  return -EPERM;
}

long refuse_call(refusal reason, long number, const std::array<long, 6>& arguments) noexcept {
  const int use = use_of(number, arguments);
  if (use < 0 || (reason == refusal::asynchronous_calls && use > last_asynchronous)) return 0;
  const auto index = static_cast<std::size_t>(use);
  if (!is_reported[index].exchange(true)) {
    const char* const why =
        reason == refusal::device_writes
            ? reason_of_device_writes()
            : "in the inline mode the kernel cannot fetch memory by itself; if the program has no other way, use "
              "--fault-mode thread";
    log_line(log_level::warning, "process %d (%s) wants %s, which is refused: %s", static_cast<int>(getpid()),
             program_invocation_short_name, uses[index].name, why);
  }
  return uses[index].error;
}

}  // namespace far::preload
