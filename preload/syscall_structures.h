// What the guard of system calls must know of them beside its table: structures of the program that lead to further
// memory, and calls that cannot be cut short or repeated.
#pragma once

#include <linux/filter.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <optional>

#include "preload/syscall_stubs.h"

namespace far::preload {

// The program of the packet filter that a call gives to the kernel; null if it gives none.
[[nodiscard]] const sock_fprog* filter_of(long number, const std::array<long, 6>& arguments) noexcept;

// Whether a call asks for the list of interfaces, if its descriptor is a socket: drivers have numbers of their own.
[[nodiscard]] bool lists_interfaces(long number, const std::array<long, 6>& arguments) noexcept;

// How much that list takes, and some more that may come meanwhile; 0 where the descriptor is no socket.
[[nodiscard]] std::size_t interface_bytes(long descriptor) noexcept;

// Whether a transfer is one message. If it is cut short, the rest is lost, or becomes another message. Drivers have
// messages, too (FUSE, tunnels), and some refuse to give one to a buffer that is shorter than their longest.
[[nodiscard]] bool keeps_messages(long descriptor) noexcept;

// Whether the call can be repeated after EFAULT. Some would have consumed what they were to return.
[[nodiscard]] bool is_repeatable(long number) noexcept;

// Whether the program expects a transfer to continue after a completed part.
[[nodiscard]] bool goes_on(long number, const std::array<long, 6>& given) noexcept;

// The words of an ioctl's structure, as far as it may lead to further memory. Zeros: it does not, or cannot be read.
using request_words = std::array<std::uintptr_t, 32>;
[[nodiscard]] request_words words_of(const std::array<long, 6>& arguments) noexcept;

// What is at a pointer of the program, if that is good: where it is not, the kernel is to say so. Far memory must be
// pinned.
template <typename value>
[[nodiscard]] std::optional<value> copy_of(const value* place) noexcept {
  value copy{};
  const iovec to{&copy, sizeof copy};
  const iovec from{const_cast<value*>(place), sizeof copy};
  const long copied = far_raw_syscall(SYS_process_vm_readv, far_raw_syscall(SYS_getpid), reinterpret_cast<long>(&to), 1,
                                      reinterpret_cast<long>(&from), 1, 0);
  return copied == static_cast<long>(sizeof copy) ? std::optional(copy) : std::nullopt;
}

}  // namespace far::preload
