// The guard of system calls in fault_mode::in_line. See docs/decisions/0005-inline-mode-in-the-run-door.md.
//
// The kernel hands every system call of a program thread back to us (system call user dispatch) as a SIGSYS. We make
// resident and pin the far memory that the call touches, and let the thread make the call itself, from code of ours
// that is not dispatched, with its own signal mask: it can be interrupted and restarted as ever.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace far::preload {

// Makes calls of the C library cheap to guard (direct_calls.h). Returns whether that was possible. To be called once,
// before any thread is started, and if fault_mode::in_line is chosen.
[[nodiscard]] bool prepare_system_calls();

// Arms the calling thread, and by it all threads and children that it starts. Requires: active_pager(); to be called
// once, at start. `far_elsewhere`: there is far memory outside of the reserved range. Fails with what to do instead on
// kernels and machines that cannot do it.
[[nodiscard]] result<void> guard_system_calls(bool far_elsewhere);

// fault_mode::thread, where the kernel can resolve misses: hands only those calls back that are made by the program's
// own code rather than the C library's, so that none about memory passes by (raw_calls.h). Nothing to do, and no cost,
// where no code of that kind is loaded. To be called once, at start. Fails where the kernel has no system call
// dispatch.
[[nodiscard]] result<void> notice_raw_calls();

// Whether SIGSYS is taken for that: a thread must never block it then.
[[nodiscard]] bool takes_sigsys() noexcept;

// A thread that the program has just started, and the only thread of a child of fork: calls of theirs are looked at
// as those of the thread that started them.
void guard_started_thread() noexcept;
void guard_child() noexcept;

// Around what blocks signals without a signal_shield: in fault_mode::thread no call of the thread is handed back.
// Returns what to give to the second.
[[nodiscard]] unsigned char let_calls_through() noexcept;
void notice_calls_again(unsigned char before) noexcept;

// Calls `visit(context, bytes)` for what system calls of the calling thread that are under way have pinned: one that a
// handler has interrupted, which forks.
void for_each_pinned_by_calls(void (*visit)(void* context, std::span<const std::byte> bytes), void* context) noexcept;

}  // namespace far::preload
