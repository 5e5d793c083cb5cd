// Limits on address space and data (RLIMIT_AS, RLIMIT_DATA) in a process with a far heap.
//
// A program's limits are meant for its own memory. The kernel counts the runtime's, too: terabytes of addresses that
// the far heap reserves, and its tables. So once the program sets a limit, the kernel gets that limit and what the
// runtime has mapped, and the program is told its own. What the program has in the far heap, the kernel counts as data
// (RLIMIT_DATA), but not as addresses, which were counted when they were reserved.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>

namespace far::platform {

// Before the runtime maps memory for itself, or after it has unmapped some: how much more there is. Never fails; where
// the kernel allows no more, the mapping that follows does.
void note_own_memory(std::int64_t address_bytes, std::int64_t data_bytes) noexcept;

// What was noted so far; and what the runtime has besides: the stacks of its threads, mappings of libraries for it.
struct own_memory {
  std::int64_t address_bytes = 0;
  std::int64_t data_bytes = 0;
};
[[nodiscard]] own_memory noted_own_memory() noexcept;
void note_other_own_memory(const own_memory& other) noexcept;

// How many bytes of addresses the runtime has for itself, the far heap included.
[[nodiscard]] std::uint64_t own_address_bytes() noexcept;

// The program's limit of this kind, if it goes through here: the last one that was set.
[[nodiscard]] std::optional<rlimit> program_limit(int kind) noexcept;

// Sets it. `wanted` has been checked: the program may set it. Only RLIMIT_AS and RLIMIT_DATA.
void set_program_limit(int kind, const rlimit& wanted) noexcept;

// Calls `tell` whenever a limit of the program is set, and now if one is. It may be called with locks held.
void call_when_limited(void (*tell)() noexcept) noexcept;

// Whether this process may raise hard limits.
[[nodiscard]] bool may_raise_limits() noexcept;

// Before this process becomes another program, which gets the limit as it is meant. The hard limit follows only where
// it can be raised again, since that may fail: then the second gives the kernel what the runtime needs.
void give_limit_to_kernel(int kind, rlimit meant) noexcept;
void take_limit_from_kernel(int kind, rlimit meant) noexcept;

// Around such a call and what belongs to it: the kernel's limits are not those of the program then.
void begin_exec() noexcept;
void end_exec() noexcept;

// All of the program's limits: when it goes on without the runtime; and when the runtime has started.
void give_limits_to_kernel() noexcept;
void take_limits_from_kernel() noexcept;

// At the start, and in the child of a fork: from now on, changes to the kernel's limits by others are noticed.
void know_kernel_limits() noexcept;

// Another process may have changed this one's limits (prlimit): then they become the program's, and the kernel gets
// what the runtime needs besides. Returns whether that was so, since a mapping that has failed may succeed now.
// Preserves errno.
bool adopt_limits_from_outside() noexcept;

// At the start, before addresses are reserved. A limit on addresses becomes the program's, and the kernel's is lifted
// as far as this process may do that.
void take_over_address_limit() noexcept;

}  // namespace far::platform
