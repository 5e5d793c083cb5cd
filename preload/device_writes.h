// Uses of memory by devices that outlast a system call: io_uring, libaio, RDMA, VFIO, AF_XDP.
//
// A kernel with UFFDIO_MOVE refuses to move a page that a device may write to. Older kernels do not, and later writes
// of the device would be lost. So there these uses are refused to the program, with one line for each kind; most
// programs have another way. Writes of a device during a call (O_DIRECT) are safe: the call's memory is pinned
// (syscall_guard.h). See docs/decisions/0021-dma-without-move.md.
//
// In fault_mode::in_line io_uring and libaio are refused on every kernel: there the kernel's own threads access memory
// at any time, and no thread could resolve their misses.
#pragma once

#include <array>

#include "pager/pager.h"

namespace far::preload {

enum class refusal {
  device_writes,      // all of these uses, where the kernel does not protect pages that devices write to
  asynchronous_calls  // io_uring and libaio, in fault_mode::in_line
};

// Whether the kernel leaves these pages unprotected, so that the uses are refused. Set before the first call is looked
// at.
extern constinit bool refuses_device_writes;
void look_out_for_device_writes() noexcept;
// In the child of a fork, which may have lost that protection (far_pager::moves_pages).
void look_out_for_device_writes_in_child() noexcept;

// Whether the call gives far memory to a virtual machine (KVM). In fault_mode::in_line it is to be refused: the kernel
// accesses that memory while the machine runs, and would stop the machine at the first remote page.
[[nodiscard]] bool gives_far_memory_to_machine(const pager::pager& pager, long number,
                                               const std::array<long, 6>& arguments) noexcept;
[[nodiscard]] long refuse_machine() noexcept;

// The error (-errno) with which the call must fail, or 0 if it may be made. Prints a line the first time. Requires:
// system calls of the calling thread go straight to the kernel.
[[nodiscard]] long refuse_call(refusal reason, long number, const std::array<long, 6>& arguments) noexcept;

}  // namespace far::preload
