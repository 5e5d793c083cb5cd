// Signals where system calls are dispatched. SIGSYS means such a call and, in fault_mode::in_line, SIGBUS a miss. These
// signals are the runtime's, and no thread blocks them. The actions that the program sets for them are recorded, and
// performed only for signals from other causes.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>

namespace far::preload {

using kernel_mask = std::uint64_t;

// The kernel's own form of struct sigaction.
struct kernel_action {
  void* handler;
  unsigned long flags;
  void (*restorer)();
  kernel_mask mask;
};

using signal_handler = void (*)(int, siginfo_t*, void*);

// Takes SIGSYS for `on_sigsys` and, where `misses_too`, SIGBUS for misses. Removes them from the mask of the calling
// thread, and of every handler that the program has by now.
void take_signals(signal_handler on_sigsys, bool misses_too) noexcept;

// Removes them from the mask of the calling thread.
void let_ours_in() noexcept;

[[nodiscard]] bool signal_is_ours(int number) noexcept;

// Without the signals that are ours.
[[nodiscard]] kernel_mask without_ours(kernel_mask mask) noexcept;

// What the kernel has for a signal that is ours; null behind the last. far_raw_clone knows where these are.
struct own_action {
  long number;
  kernel_action action;
  const own_action* next;
};
[[nodiscard]] const own_action* own_actions() noexcept;

// In a child with memory of its own whose handlers the kernel has reset (CLONE_CLEAR_SIGHAND): the program's are reset
// as well, and ours are set again.
void reset_actions_in_child() noexcept;

// Behaves like rt_sigaction(2) of a signal that is ours. Requires: the calling thread is in a signal handler.
void exchange_program_action(int number, const kernel_action* action, kernel_action* old) noexcept;

// In the child of a fork: another thread of the parent may have been changing an action.
void open_program_actions_in_child() noexcept;

// Performs the program's action for a signal. Call it in a handler, which then returns.
void pass_to_program(int number, siginfo_t* info, ucontext_t& context) noexcept;

}  // namespace far::preload
