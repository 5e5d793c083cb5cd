// Signal handlers of the program, in fault_mode::in_line. The kernel would push their frame on the thread's own stack,
// or on the program's signal stack, which may be far, and end the process where that is not resident: its own misses
// nobody can resolve. So it pushes the frame on our signal stack, and we move it to where it belongs, as the thread
// itself; and when the handler ends, the kernel reads a copy.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>

#include "preload/signals.h"

namespace far::preload {

// Behaves like rt_sigaction(2) of a signal that is not ours: the result is the kernel's, negative on failure.
// Requires: the calling thread is in a signal handler.
[[nodiscard]] long exchange_relayed_action(int number, const kernel_action* action, kernel_action* old,
                                           std::size_t mask_bytes) noexcept;

// In the child of a fork: another thread of the parent may have been changing an action.
void open_relayed_actions_in_child() noexcept;

// Requires of all below: the calling thread is in a handler of SIGSYS, with the registers `context`.

// Of a call that ends a handler: what that handler interrupted, and the signal mask of it without ours.
[[nodiscard]] ucontext_t& interrupted_by_handler(const ucontext_t& context) noexcept;
[[nodiscard]] kernel_mask mask_to_restore(const ucontext_t& interrupted) noexcept;
// The bytes of the floating-point state that the kernel would read there: no more than it saves now.
[[nodiscard]] std::size_t bytes_to_restore(const ucontext_t& context) noexcept;

// The end of a handler of the program, whose frame may be far: its pages may leave at any time, and the kernel cannot
// wait for them. So it reads the frame of SIGSYS instead, which is local, and gets the program's state from there when
// our handler returns. Registers, mask and signal stack come back in one step, as natively: a signal in between could
// begin where the frame is, at the top of the program's signal stack. `room`, in the frame of our handler, is for
// bytes_to_restore(), and aligning it.
void return_from_handler(ucontext_t& context, void* room) noexcept;

// Moves the floating-point state, of so many bytes, to `room`, which has alignment_of_registers more. The kernel reads
// it wherever it lies, and nothing runs between our return and that moment: all signals are blocked.
inline constexpr std::uintptr_t alignment_of_registers = 64;
void move_registers(ucontext_t& context, const void* from, std::size_t bytes, void* room) noexcept;

}  // namespace far::preload
