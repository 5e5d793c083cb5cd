// The guard of system calls in fault_mode::in_line. See docs/decisions/0005-inline-mode-in-the-run-door.md.
//
// The kernel turns every system call of a program thread into a SIGSYS (system call user dispatch). The guard makes the
// far memory that the call touches resident and pins it. Then the thread makes the call itself, from stubs that are not
// dispatched, with its own signal mask, so the call can be interrupted and restarted as usual.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace far::preload {

// Makes calls of the C library cheap to guard (direct_calls.h). Returns whether that was possible. To be called once,
// before any thread is started, and if fault_mode::in_line is chosen.
[[nodiscard]] bool prepare_system_calls();

// Arms the calling thread, and so all threads and children that it starts. Requires: active_pager(); to be called once,
// at start. `far_elsewhere`: there is far memory outside of the reserved range. Fails with what to do instead on
// kernels and machines that cannot do it.
[[nodiscard]] result<void> guard_system_calls(bool far_elsewhere);

// fault_mode::thread, where the kernel can resolve misses: dispatches only calls that the program's own code makes, and
// not the C library's, so that no call about memory is missed (raw_calls.h). It does and costs nothing if no such code
// is loaded. To be called once, at start. Fails where the kernel has no system call dispatch.
[[nodiscard]] result<void> notice_raw_calls();

// Whether SIGSYS is taken for that: a thread must never block it then.
[[nodiscard]] bool takes_sigsys() noexcept;

// For a thread that the program has just started, and for the only thread of a child of fork: their calls are
// dispatched like those of the thread that started them.
void guard_started_thread() noexcept;
void guard_child() noexcept;

// Around code that blocks signals without a signal_shield: in fault_mode::thread no call of the thread is dispatched
// there. The first returns the argument of the second.
[[nodiscard]] unsigned char let_calls_through() noexcept;
void notice_calls_again(unsigned char before) noexcept;

// Calls `visit(context, bytes)` for memory that is pinned by system calls under way on the calling thread: a handler
// that forks may have interrupted one.
void for_each_pinned_by_calls(void (*visit)(void* context, std::span<const std::byte> bytes), void* context) noexcept;

}  // namespace far::preload
