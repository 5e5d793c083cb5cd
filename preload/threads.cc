#include "preload/threads.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "pager/runtime_thread.h"
#include "platform/local_memory.h"
#include "platform/signal_shield.h"
#include "preload/in_runtime.h"
#include "preload/signals.h"
#include "preload/syscall_memory.h"
#include "preload/syscall_stubs.h"

namespace far::preload {
namespace {

// As in linux/prctl.h, which older systems have without it.
constexpr long set_syscall_user_dispatch = 59;
constexpr long dispatch_on = 1;
constexpr std::size_t least_stack_bytes = 2048;  // MINSIGSTKSZ

// What the kernel reads and writes of a ucontext_t; the C library's is longer.
constexpr std::size_t kernel_context_bytes = offsetof(ucontext_t, uc_sigmask) + sizeof(std::uint64_t);

constinit thread_local thread_state state;

struct child_plan {
  std::uint64_t flags = 0;
  std::uint64_t stack = 0;  // its end, or 0
  std::uint64_t tls = 0;
};

child_plan plan_of(long number, const greg_t* registers) {
  child_plan plan;
  if (number == SYS_vfork) plan.flags = CLONE_VM | CLONE_VFORK;
  if (number == SYS_clone) {
    plan.flags = static_cast<std::uint64_t>(registers[REG_RDI]);
    plan.stack = static_cast<std::uint64_t>(registers[REG_RSI]);
    plan.tls = static_cast<std::uint64_t>(registers[REG_R8]);
  }
  if (number == SYS_clone3) {
    clone_args asked{};
    const auto bytes = std::min<std::size_t>(static_cast<std::size_t>(registers[REG_RSI]), sizeof asked);
    std::memcpy(&asked, reinterpret_cast<const void*>(registers[REG_RDI]), bytes);
    plan.flags = asked.flags;
    plan.stack = asked.stack == 0 ? 0 : asked.stack + asked.stack_size;
    plan.tls = asked.tls;
  }
  return plan;
}

long arm(unsigned char* selector) {
  return far_raw_syscall(SYS_prctl, set_syscall_user_dispatch, dispatch_on, reinterpret_cast<long>(far_stubs_begin),
                         far_stubs_end - far_stubs_begin, reinterpret_cast<long>(selector));
}

stack_t kernel_stack(std::byte* memory) {
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = memory == nullptr ? 0 : signal_stack_bytes;
  stack.ss_flags = memory == nullptr ? SS_DISABLE : 0;
  return stack;
}

// The same thread-local variable of a thread whose thread pointer will be `tls`.
thread_state& state_at(std::uint64_t tls) {
  const auto offset = reinterpret_cast<std::byte*>(&state) - static_cast<std::byte*>(__builtin_thread_pointer());
  return *reinterpret_cast<thread_state*>(reinterpret_cast<std::byte*>(tls) + offset);
}

// Bytes of the floating-point state that the kernel left behind a signal frame.
std::size_t extended_state_bytes(const void* fpregs) {
  constexpr std::size_t legacy_bytes = 512;
  constexpr std::uint32_t magic = 0x46505853;
  std::uint32_t words[2];
  std::memcpy(words, static_cast<const std::byte*>(fpregs) + 464, sizeof words);
  return words[0] == magic ? words[1] : legacy_bytes;
}

// Copies the signal frame of `context` to below `top`, for a child that starts from it.
ucontext_t* copy_frame(const ucontext_t& context, std::byte* top) {
  auto place = reinterpret_cast<std::uintptr_t>(top) - red_zone_bytes;
  void* extended = nullptr;
  if (context.uc_mcontext.fpregs != nullptr) {
    const std::size_t bytes = extended_state_bytes(context.uc_mcontext.fpregs);
    place = (place - bytes) & ~std::uintptr_t{63};
    extended = reinterpret_cast<void*>(place);
    std::memcpy(extended, context.uc_mcontext.fpregs, bytes);
  }
  place = (place - kernel_context_bytes) & ~std::uintptr_t{15};
  auto* const copy = reinterpret_cast<ucontext_t*>(place);
  std::memcpy(static_cast<void*>(copy), &context, kernel_context_bytes);
  copy->uc_mcontext.fpregs = static_cast<fpregset_t>(extended);
  return copy;
}

// A child on a stack of its own, or on the memory of this thread, which then waits.
long clone_from_frame(ucontext_t& context, const child_plan& plan, const long* call, bool dispatched) {
  const bool borrows = (plan.flags & CLONE_VFORK) != 0 && (plan.flags & CLONE_SETTLS) == 0;
  const bool shares_memory = (plan.flags & CLONE_VM) != 0;
  const bool own_state = (plan.flags & CLONE_SETTLS) != 0;
  // A child that shares our thread-local variables while we run cannot have a selector.
  const bool armed = dispatched && (borrows || own_state || !shares_memory);
  std::byte* const signal_stack = armed && shares_memory ? platform::map_local(signal_stack_bytes) : nullptr;
  std::byte* const top = plan.stack != 0 ? reinterpret_cast<std::byte*>(plan.stack) : signal_stack + signal_stack_bytes;
  ucontext_t* const frame = copy_frame(context, top);
  frame->uc_mcontext.gregs[REG_RAX] = 0;
  if (plan.stack != 0) frame->uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(plan.stack);
  if (shares_memory) frame->uc_stack = kernel_stack(signal_stack);
  thread_state& child = own_state ? state_at(plan.tls) : state;
  if (own_state && armed) child.signal_stack = shares_memory ? signal_stack : state.signal_stack;
  guarded_call* const calls_before = state.calls;
  if (borrows) state.lent_to_child = true;
  const long result = far_raw_clone(call, frame, armed ? const_cast<unsigned char*>(&child.selector) : nullptr);
  if (borrows) {
    state.lent_to_child = false;
    state.selector = selector_undispatched;  // the child used it too
  }
  // What the child still held when it called exec.
  if (borrows && shares_memory) release_calls_until(calls_before);
  if (signal_stack != nullptr && (result < 0 || !own_state)) platform::unmap_local(signal_stack, signal_stack_bytes);
  return result;
}

constexpr kernel_mask all_signals = ~kernel_mask{0};
constexpr kernel_mask all_but_misses = without_ours(all_signals);

// No handler of the program's runs between the two steps of either, so none runs undispatched. The program's own stack
// may be far: then misses are let in, and the kernel is given no address on it. A miss may come between any two
// instructions there, and its handler leaves mask_exchanged as it was.
std::uint64_t begin_shield(unsigned char* dispatch_before) noexcept {
  const kernel_mask& blocked = stack_is_far() ? all_but_misses : all_signals;
  const kernel_mask outer = state.mask_exchanged;
  far_raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&blocked),
                  reinterpret_cast<long>(&state.mask_exchanged), sizeof(kernel_mask));
  const kernel_mask before = std::exchange(state.mask_exchanged, outer);
  *dispatch_before = state.selector;
  state.selector = selector_undispatched;
  return before;
}

void end_shield(std::uint64_t signals_before, unsigned char dispatch_before) noexcept {
  state.selector = dispatch_before;
  const kernel_mask outer = std::exchange(state.mask_exchanged, signals_before);
  far_raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&state.mask_exchanged), 0,
                  sizeof(kernel_mask));
  state.mask_exchanged = outer;
}

constexpr platform::shield_hooks undispatched_shields{begin_shield, end_shield};

}  // namespace

thread_state& this_thread() noexcept {
  return state;
}

result<void> arm_this_thread() {
  std::byte* const memory = platform::try_map_local(signal_stack_bytes);
  if (memory == nullptr) return error{"no memory for a signal stack", ENOMEM};
  const stack_t stack = kernel_stack(memory);
  stack_t before{};
  far_raw_syscall(SYS_sigaltstack, reinterpret_cast<long>(&stack), reinterpret_cast<long>(&before));
  const long failure = arm(const_cast<unsigned char*>(&state.selector));
  if (failure != 0) {
    far_raw_syscall(SYS_sigaltstack, reinterpret_cast<long>(&before));
    platform::unmap_local(memory, signal_stack_bytes);
    return error{std::string("--fault-mode inline needs system call user dispatch (Linux 5.11 or later), which this "
                             "kernel refuses: ") +
                     std::strerror(static_cast<int>(-failure)) + "; use --fault-mode thread",
                 static_cast<int>(-failure)};
  }
  state.signal_stack = memory;
  state.program_stack = before;
  state.selector = selector_dispatched;
  platform::installed_shield_hooks.store(&undispatched_shields, std::memory_order_release);
  return {};
}

void do_clone(ucontext_t& context, long number) {
  const bool dispatched = !pager::on_runtime_thread();
  const undispatched_section section;
  greg_t* const registers = context.uc_mcontext.gregs;
  const child_plan plan = plan_of(number, registers);
  const long call[] = {number,           registers[REG_RDI], registers[REG_RSI], registers[REG_RDX], registers[REG_R10],
                       registers[REG_R8]};
  if ((plan.flags & CLONE_VM) != 0 || plan.stack != 0) {
    registers[REG_RAX] = clone_from_frame(context, plan, call, dispatched);
    return;
  }
  const long result = far_raw_syscall(number, call[1], call[2], call[3], call[4], call[5]);
  if (result == 0) {
    forget_calls_of_other_threads();
    if (dispatched) arm(const_cast<unsigned char*>(&state.selector));
  }
  registers[REG_RAX] = result;
}

void do_sigaltstack(ucontext_t& context) noexcept {
  greg_t* const registers = context.uc_mcontext.gregs;
  const auto* const wanted = reinterpret_cast<const stack_t*>(registers[REG_RDI]);
  auto* const old = reinterpret_cast<stack_t*>(registers[REG_RSI]);
  const stack_t before = state.program_stack;
  registers[REG_RAX] = 0;
  if (wanted != nullptr) {
    const stack_t asked = *wanted;
    if ((asked.ss_flags & SS_DISABLE) == 0 && asked.ss_size < least_stack_bytes) {
      registers[REG_RAX] = -ENOMEM;
      return;
    }
    state.program_stack = asked;
  }
  if (old != nullptr) *old = before;
}

void do_exit_thread(long status) {
  if (state.lent_to_child || state.signal_stack == nullptr) {
    far_raw_syscall(SYS_exit, status);
  }
  {
    const undispatched_section section;
    release_calls_until(nullptr);
  }
  far_end_thread(state.signal_stack, signal_stack_bytes, status);
}

}  // namespace far::preload
