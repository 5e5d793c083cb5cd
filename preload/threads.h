// Threads of the program whose system calls are dispatched: each has a selector, by which the kernel knows whether to
// dispatch its system calls to the guard, and in fault_mode::in_line a signal stack in local memory, because its own
// stack may be far.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace far::preload {

struct guarded_call;

// The values that the kernel knows (SYSCALL_DISPATCH_FILTER_ALLOW, SYSCALL_DISPATCH_FILTER_BLOCK).
inline constexpr unsigned char selector_undispatched = 0;
inline constexpr unsigned char selector_dispatched = 1;

struct thread_state {
  volatile unsigned char selector = selector_undispatched;
  bool armed = false;                             // arm_for_raw_calls() or arm_started_thread()
  bool lent_to_child = false;                     // a child of vfork runs on our memory while this thread waits for it
  bool shared_with_child = false;                 // a child of ours that is no thread may run with this very state
  std::uint64_t mask_exchanged = 0;               // with the kernel, where a signal shield begins or ends
  bool wants_tracer = false;                      // a child of vfork that is to be traced from its exec on
  std::byte* signal_stack = nullptr;              // signal_stack_bytes, or null
  stack_t program_stack{nullptr, SS_DISABLE, 0};  // the signal stack that the program sees
  // The same within a handler that the kernel would have started without one: there was none, or SS_AUTODISARM.
  stack_t handler_stack{nullptr, SS_DISABLE, 0};
  const ucontext_t* system_call = nullptr;  // its system call, while the guard makes the memory resident
  guarded_call* calls = nullptr;            // system calls under way that hold pages, innermost first
  std::uint64_t handler_mask = 0;           // for the kernel, where a relayed handler begins
  std::byte* watched_stack = nullptr;       // for raw calls that are watched, watched_stack_bytes; kept for the next
  std::byte* handler_end = nullptr;         // on the program's stack: the lowest address that a handler of ours uses
};
inline constexpr std::size_t signal_stack_bytes = std::size_t{256} << 10;

inline constexpr std::size_t watched_stack_bytes = std::size_t{64} << 10;

[[nodiscard]] thread_state& this_thread() noexcept;

// Whether it is the stack that this thread has from us.
[[nodiscard]] bool is_on_signal_stack(std::uintptr_t stack_pointer) noexcept;

// Whether a handler that runs on this signal stack of the program's would find that it is the current one.
[[nodiscard]] bool keeps_stack(const stack_t& stack) noexcept;
// Whether code with this stack pointer runs on it.
[[nodiscard]] bool holds(const stack_t& stack, std::uintptr_t stack_pointer) noexcept;

// Bytes of the floating-point state that the kernel left behind a signal frame.
[[nodiscard]] std::size_t extended_state_bytes(const void* fpregs) noexcept;

// While one of these lives, system calls of the calling thread go straight to the kernel. For signal handlers only:
// code that runs meanwhile must not leave by a jump.
class undispatched_section {
 public:
  undispatched_section() noexcept : before_(this_thread().selector) { this_thread().selector = selector_undispatched; }
  ~undispatched_section() { this_thread().selector = before_; }
  undispatched_section(const undispatched_section&) = delete;
  undispatched_section& operator=(const undispatched_section&) = delete;

 private:
  unsigned char before_;
};

// Gives the calling thread a signal stack and turns dispatch on. Fails where the kernel has no system call dispatch.
[[nodiscard]] result<void> arm_this_thread();

// The same for calls that are made from outside the allowed code only, and without a signal stack.
[[nodiscard]] result<void> arm_for_raw_calls(std::uintptr_t allowed_begin, std::size_t allowed_bytes);
// A thread that such a thread has started, and the child of its fork.
void arm_started_thread() noexcept;
void arm_child() noexcept;
// Before the first: for vfork, whose child is armed as well.
void find_next_vfork() noexcept;
// Suspend and resume the dispatch of raw calls around code that blocks signals without a signal_shield.
[[nodiscard]] unsigned char suspend_raw_calls() noexcept;
void resume_raw_calls(unsigned char before) noexcept;

// The system calls below, in a handler of SIGSYS with the registers `context`, which get the result.
void do_clone(ucontext_t& context, long number);    // clone, clone3, fork, vfork: the child is dispatched as well
void do_sigaltstack(ucontext_t& context) noexcept;  // seemingly: the signal stack stays ours
// For a handler of the program that begins, in its frame outside of our signal stack, and for one that returns to
// `interrupted`: do what the kernel does to signal stacks then.
void enter_handler(ucontext_t& interrupted) noexcept;
void leave_handler(ucontext_t& interrupted) noexcept;
[[noreturn]] void do_exit_thread(long status);

// Prepares the thread to make a call after we return to it that is looked at as if it came from a place in the C
// library (direct_calls.h). That takes a stack of its own, since the program's may be small.
void do_watched_call(ucontext_t& context, long number);

}  // namespace far::preload
