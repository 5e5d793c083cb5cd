// System calls of the C library without a signal, in fault_mode::in_line: its call sites jump here. Calls that touch no
// far memory go directly to the kernel. For the others, the memory is first made resident and pinned. Calls that need
// the whole guard are dispatched as before. See docs/decisions/0030-call-sites.md.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "pager/pager.h"

namespace far::preload {

// Patches the call sites of the C library; returns how many. Until a thread is dispatched its calls go straight to the
// kernel. Without the sites every call is dispatched, which is slower. Requires: the C library is found. Fails where
// threads run already (they may be inside a call, and would return into changed code), and where the calls that matter
// most are not among the sites. `dispatches`: fault_mode::in_line; in fault_mode::thread they go straight to the kernel
// until they are watched.
[[nodiscard]] result<std::size_t> take_over_call_sites(bool dispatches);

// From here on the calls of dispatched threads are inspected. `far_elsewhere`: there is far memory outside of the
// reserved range. `watches_devices`: calls that could let a device write to memory are left to the guard
// (device_writes.h). To be called before the first thread is dispatched.
void look_at_direct_calls(const pager::pager& pager, bool far_elsewhere, bool watches_devices) noexcept;

// The same for `watches_devices` alone, in the child of a fork.
void watch_devices() noexcept;

// fault_mode::thread. Takes them over, for the next.
void prepare_watched_calls();

// From now on limits_before_exec() (resource_limits.h) is called before each exec, also before those that the C library
// makes by itself (posix_spawn, system). To be called when the program's limits differ from the kernel's.
void watch_exec() noexcept;
[[nodiscard]] bool exec_is_watched() noexcept;

// From now on the C library's own reads and writes, for its streams, are shown to memory_file.h.
void watch_transfers() noexcept;

}  // namespace far::preload
