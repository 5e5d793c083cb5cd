// What the guard of system calls must know of them beside its table: structures of the program that lead to further
// memory, and calls that cannot be cut short or repeated.
#pragma once

#include <linux/filter.h>

#include <array>
#include <cstddef>

#include "preload/program_memory.h"

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

// Whether the call can be repeated after EFAULT. Some have consumed what they were to return, or sent what they were to
// count, before they find that the program's memory is not for that.
[[nodiscard]] bool is_repeatable(long number, const std::array<long, 6>& given) noexcept;

// Whether the program expects a transfer to continue after a completed part.
[[nodiscard]] bool goes_on(long number, const std::array<long, 6>& given) noexcept;

// Memory to which the structure of a call may lead. Null: this word leads nowhere.
struct memory_part {
  std::byte* address;
  std::size_t bytes;
};
using memory_parts = std::array<memory_part, 32>;

// All of it: each word of the structure may be a pointer. The structure is that of an ioctl, of bpf(2), of a request of
// ptrace(2) about registers, of a socket's option, of an attribute of a file, or that with the mask of pselect6(2).
[[nodiscard]] memory_parts parts_of(long number, const std::array<long, 6>& arguments) noexcept;

// Whether the structure may lead to any. Most calls have none.
[[nodiscard]] bool has_parts(long number, const std::array<long, 6>& arguments) noexcept;

// How long the structure of an ioctl is, with what follows it. Requires: its beginning is resident, if it is far.
[[nodiscard]] std::size_t structure_bytes(unsigned request, const std::byte* structure) noexcept;

}  // namespace far::preload
