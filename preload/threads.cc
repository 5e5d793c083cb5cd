#include "preload/threads.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "platform/local_memory.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"
#include "preload/in_runtime.h"
#include "preload/program_memory.h"
#include "preload/raw_calls.h"
#include "preload/runtime.h"
#include "preload/signals.h"
#include "preload/syscall_memory.h"
#include "preload/syscall_stubs.h"

namespace far::preload {

// Named for direct_call_stubs.cc, which knows where these are.
extern constinit thread_local thread_state state asm("far_this_thread") __attribute__((visibility("hidden")));
constinit thread_local thread_state state;
static_assert(offsetof(thread_state, selector) == 0 && offsetof(thread_state, armed) == 1);
static_assert(offsetof(thread_state, lent_to_child) == 2);
static_assert(offsetof(thread_state, shared_with_child) == 3 && offsetof(thread_state, mask_exchanged) == 8);

namespace {

// As in linux/prctl.h, which older systems have without it.
constexpr long set_syscall_user_dispatch = 59;
constexpr long dispatch_on = 1;
constexpr std::size_t least_stack_bytes = 2048;      // MINSIGSTKSZ
constexpr int disarms = static_cast<int>(1U << 31);  // SS_AUTODISARM
// In uc_flags, of which the kernel uses the lowest bits: uc_stack is the program's.
constexpr unsigned long has_program_stack = 1UL << 63;
constexpr stack_t no_stack{nullptr, SS_DISABLE, 0};

// The part of a ucontext_t that the kernel reads and writes; the C library's is longer.
constexpr std::size_t kernel_context_bytes = offsetof(ucontext_t, uc_sigmask) + sizeof(std::uint64_t);

// Whether only calls of the program's own code are dispatched: its signal stacks are its own then.
bool only_raw_calls = false;

long arm(unsigned char* selector) {
  return far_raw_syscall(SYS_prctl, set_syscall_user_dispatch, dispatch_on, static_cast<long>(far_undispatched[0]),
                         static_cast<long>(far_undispatched[1]), reinterpret_cast<long>(selector));
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

// The signal stack of a child that shares our memory, as the kernel would leave it.
stack_t child_stack(const ucontext_t& context, const child_call& plan, std::byte* ours) {
  if (!only_raw_calls) return kernel_stack(ours);
  return (plan.flags & CLONE_VFORK) != 0 ? context.uc_stack : kernel_stack(nullptr);
}

// Our thread-local variables are shared with it, too. When both miss at the same time, either may wait for ever.
void warn_of_shared_variables() {
  static std::atomic<bool> is_said{false};
  if (is_said.exchange(true)) return;
  const int saved_errno = errno;
  const platform::runtime_mark allocate_locally;
  log_line(log_level::warning,
           "process %d (%s) starts a process that runs beside it in its memory and is no thread (clone with CLONE_VM); "
           "in the inline mode either may stop when it touches far memory. If so, use --fault-mode thread",
           static_cast<int>(getpid()), program_invocation_short_name);
  errno = saved_errno;
}

// Keeps what our handler has on the stack that the child of a vfork uses meanwhile: the one that the child goes on with
// or, where only raw calls are noticed, its signal stack.
class kept_stack {
 public:
  kept_stack(const ucontext_t& context, bool is_shared) : first_(state.handler_end) {
    if (!is_shared) return;
    const auto first = reinterpret_cast<std::uintptr_t>(first_);
    const auto interrupted = static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RSP]);
    const auto signal_stack = reinterpret_cast<std::uintptr_t>(context.uc_stack.ss_sp);
    const std::uintptr_t signal_stack_end = signal_stack + context.uc_stack.ss_size;
    const bool on_signal_stack = first - signal_stack < context.uc_stack.ss_size;
    const bool was_on_it = interrupted - signal_stack <= context.uc_stack.ss_size;
    bytes_ = (on_signal_stack && !was_on_it ? signal_stack_end : interrupted) - first;
    copy_ = platform::allocate_local(bytes_);
    std::memcpy(copy_, first_, bytes_);
  }
  ~kept_stack() {
    if (copy_ == nullptr) return;
    std::memcpy(first_, copy_, bytes_);
    platform::free_local(copy_, bytes_);
  }
  kept_stack(const kept_stack&) = delete;
  kept_stack& operator=(const kept_stack&) = delete;

 private:
  std::byte* first_;
  std::size_t bytes_ = 0;
  void* copy_ = nullptr;
};

// Pins what the kernel stores for the program when it makes a child that shares our memory.
guarded_call* hold_numbers(const ucontext_t& context, const child_call& plan) {
  pager::pager* const pager = active_pager();
  const bool stores = plan.parent_id != 0 || plan.child_id != 0 || plan.descriptor != 0;
  if (only_raw_calls || !stores || pager == nullptr || platform::on_runtime_thread()) return nullptr;
  const platform::runtime_mark allocate_locally;
  const auto stack = static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RSP]);
  return guard_call(*pager, plan.number, plan.arguments, false, stack);
}

// A child on a stack of its own, or on the memory of this thread, which then waits.
long clone_from_frame(ucontext_t& context, const child_call& plan, bool dispatched) {
  const bool borrows = (plan.flags & CLONE_VFORK) != 0 && (plan.flags & CLONE_SETTLS) == 0;
  const bool shares_memory = (plan.flags & CLONE_VM) != 0;
  const bool own_state = (plan.flags & CLONE_SETTLS) != 0;
  // A child that shares our thread-local variables while we run cannot have a selector. Nor can one whose thread-local
  // variables may not be the C library's; where every call is dispatched they always are.
  const bool armed = dispatched && (borrows || (!only_raw_calls && (own_state || !shares_memory)));
  const bool wants_memory = only_raw_calls ? plan.stack == 0 : armed && shares_memory;
  std::byte* const memory = wants_memory ? platform::map_local(signal_stack_bytes) : nullptr;
  std::byte* const top = plan.stack != 0 ? reinterpret_cast<std::byte*>(plan.stack) : memory + signal_stack_bytes;
  ucontext_t* const frame = copy_frame(context, top);
  frame->uc_mcontext.gregs[REG_RAX] = 0;
  if (plan.stack != 0) frame->uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(plan.stack);
  if (shares_memory) frame->uc_stack = child_stack(context, plan, memory);
  thread_state& child = own_state && armed ? state_at(plan.tls) : state;
  if (own_state && armed) child.signal_stack = shares_memory ? memory : state.signal_stack;
  guarded_call* const numbers = hold_numbers(context, plan);
  guarded_call* const calls_before = numbers != nullptr ? numbers->next : state.calls;
  const bool on_stack_of_child = only_raw_calls || is_on_signal_stack(context.uc_mcontext.gregs[REG_RSP]);
  const kept_stack stack(context, on_stack_of_child && borrows && shares_memory);
  if (borrows) state.lent_to_child = true;
  if (shares_memory && !borrows && !own_state) {
    state.shared_with_child = true;
    if (!only_raw_calls) warn_of_shared_variables();
  }
  const std::array<long, 6>& given = plan.arguments;
  const long call[] = {plan.number, given[0], given[1], given[2], given[3], given[4]};
  const own_action* const actions = armed && resets_actions(plan) ? own_actions() : nullptr;
  const long result =
      far_raw_clone(call, frame, armed ? const_cast<unsigned char*>(&child.selector) : nullptr, actions);
  if (borrows) {
    state.lent_to_child = false;
    state.wants_tracer = false;
    state.selector = selector_undispatched;  // the child used it too
  }
  // The memory that the child still held when it called exec, too.
  if (borrows && shares_memory) {
    release_calls_until(calls_before);
  } else if (numbers != nullptr) {
    release_call(*numbers);
  }
  if (memory != nullptr && (result < 0 || !own_state)) platform::unmap_local(memory, signal_stack_bytes);
  return result;
}

long copy_process(long number, const call_arguments& given) {
  const long result = far_raw_syscall(number, given[0], given[1], given[2], given[3], given[4], given[5]);
  if (result == 0) forget_calls_of_other_threads();
  return result;
}

constexpr kernel_mask all_signals = ~kernel_mask{0};
constexpr kernel_mask all_but_misses = all_signals & ~(kernel_mask{1} << (SIGBUS - 1) | kernel_mask{1} << (SIGSYS - 1));

// No handler of the program runs between the two steps of either, so none runs undispatched. The program's own stack
// may be far: then misses are allowed, and the kernel gets no address on it. A miss may come between any two
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

// The kernel's own code (clocks) makes system calls where the machine's clock cannot be read without, and may lie where
// they are dispatched: with SIGSYS blocked the thread would die of that.
std::uint64_t begin_shield_of_raw_calls(unsigned char* dispatch_before) noexcept {
  const std::uint64_t before = platform::block_signals();
  *dispatch_before = state.selector;
  state.selector = selector_undispatched;
  return before;
}

void end_shield_of_raw_calls(std::uint64_t signals_before, unsigned char dispatch_before) noexcept {
  state.selector = dispatch_before;
  platform::restore_signals(signals_before);
}

constexpr platform::shield_hooks shields_of_raw_calls{begin_shield_of_raw_calls, end_shield_of_raw_calls};

// ---- sigaltstack ----

// Whether the kernel would have started the handler, which runs on ours, on this stack.
bool same_place(const stack_t& stack) {
  return state.program_stack.ss_size != 0 && stack.ss_sp == state.program_stack.ss_sp;
}

long set_stack(stack_t& current, stack_t asked) {
  const int mode = asked.ss_flags & ~disarms;
  if (mode != SS_DISABLE && mode != SS_ONSTACK && mode != 0) return -EINVAL;
  if (mode == SS_DISABLE) {
    asked.ss_sp = nullptr;
    asked.ss_size = 0;
  } else if (asked.ss_size < least_stack_bytes) {
    return -ENOMEM;
  }
  current = asked;
  return 0;
}

}  // namespace

std::size_t extended_state_bytes(const void* fpregs) noexcept {
  constexpr std::size_t legacy_bytes = 512;
  constexpr std::uint32_t magic = 0x46505853;
  std::uint32_t words[2];
  std::memcpy(words, static_cast<const std::byte*>(fpregs) + 464, sizeof words);
  return words[0] == magic ? words[1] : legacy_bytes;
}

bool keeps_stack(const stack_t& stack) noexcept {
  return stack.ss_size != 0 && (stack.ss_flags & disarms) == 0;
}

bool holds(const stack_t& stack, std::uintptr_t stack_pointer) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(stack.ss_sp);
  return stack_pointer > first && stack_pointer - first <= stack.ss_size;
}

thread_state& this_thread() noexcept {
  return state;
}

bool is_on_signal_stack(std::uintptr_t stack_pointer) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(state.signal_stack);
  return first != 0 && stack_pointer - first < signal_stack_bytes;
}

result<void> arm_for_raw_calls(std::uintptr_t allowed_begin, std::size_t allowed_bytes) {
  far_undispatched[0] = allowed_begin;
  far_undispatched[1] = allowed_bytes;
  only_raw_calls = true;
  const long failure = arm(const_cast<unsigned char*>(&state.selector));
  if (failure != 0) {
    only_raw_calls = false;
    return error{std::strerror(static_cast<int>(-failure)), static_cast<int>(-failure)};
  }
  state.armed = true;
  state.selector = selector_dispatched;
  platform::installed_shield_hooks.store(&shields_of_raw_calls, std::memory_order_release);
  return {};
}

unsigned char suspend_raw_calls() noexcept {
  const unsigned char before = state.selector;
  if (only_raw_calls) state.selector = selector_undispatched;
  return before;
}

void resume_raw_calls(unsigned char before) noexcept {
  if (only_raw_calls) state.selector = before;
}

void arm_started_thread() noexcept {
  if (!only_raw_calls || platform::on_runtime_thread()) return;
  let_ours_in();
  state.armed = arm(const_cast<unsigned char*>(&state.selector)) == 0;
  state.selector = selector_dispatched;
}

void arm_child() noexcept {
  if (only_raw_calls && state.armed) arm(const_cast<unsigned char*>(&state.selector));
}

// The signal stack comes first: the first dispatched call is delivered on it. If the kernel refuses the dispatch, the
// program's signal stack is put back.
result<void> arm_this_thread() {
  far_undispatched[0] = reinterpret_cast<std::uintptr_t>(far_stubs_begin);
  far_undispatched[1] = static_cast<std::size_t>(far_stubs_end - far_stubs_begin);
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

// Three kinds of children need three ways. A child with its own memory needs the fork protocol; a thread, or a child on
// another stack, must be started from the program's frame rather than from this handler; and a plain copy only needs
// its own dispatch, which the kernel does not inherit.
void do_clone(ucontext_t& context, long number) {
  const bool dispatched = !platform::on_runtime_thread();
  const undispatched_section section;
  greg_t* const registers = context.uc_mcontext.gregs;
  const call_arguments given{registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                             registers[REG_R10], registers[REG_R8],  registers[REG_R9]};
  const std::optional<child_call> read = read_child_call(number, given);
  if (!read) {
    registers[REG_RAX] = far_raw_syscall(number, given[0], given[1]);  // which the kernel refuses
    return;
  }
  const child_call& plan = *read;
  if (copies_memory(plan)) {
    const long result = make_copied_child(plan, copy_process);
    if (result == 0 && dispatched && !only_raw_calls) arm(const_cast<unsigned char*>(&state.selector));
    if (result == 0 && plan.stack != 0) registers[REG_RSP] = static_cast<greg_t>(plan.stack);
    registers[REG_RAX] = result;
    return;
  }
  if ((plan.flags & CLONE_VM) != 0 || plan.stack != 0) {
    registers[REG_RAX] = clone_from_frame(context, plan, dispatched);
    return;
  }
  const long result = copy_process(number, plan.arguments);
  if (result == 0 && dispatched) arm(const_cast<unsigned char*>(&state.selector));
  registers[REG_RAX] = result;
}

// A handler of the program may have interrupted such a call; then this one goes on below it.
void do_watched_call(ucontext_t& context, long number) {
  if (state.watched_stack == nullptr) state.watched_stack = platform::map_local(watched_stack_bytes);
  greg_t* const registers = context.uc_mcontext.gregs;
  const auto stack = static_cast<std::uintptr_t>(registers[REG_RSP]);
  const auto first = reinterpret_cast<std::uintptr_t>(state.watched_stack);
  const bool is_on_it = stack - first < watched_stack_bytes;
  const std::uintptr_t top = is_on_it ? round_down(stack - red_zone_bytes, 16) : first + watched_stack_bytes;
  auto* const pushed = reinterpret_cast<std::uintptr_t*>(top) - 2;
  pushed[0] = static_cast<std::uintptr_t>(registers[REG_RIP]);
  pushed[1] = stack;
  registers[REG_RSP] = reinterpret_cast<greg_t>(pushed);
  registers[REG_RAX] = number;
  registers[REG_RIP] = reinterpret_cast<greg_t>(far_site_raw);
}

// The kernel has our signal stack, and handlers of SIGBUS and SIGSYS run on it, as those do for which the program's has
// no room. So the answers are those of the kernel, with one exception: such a handler that asks for the stack in use
// gets ours, to check whether it runs on it.
void do_sigaltstack(ucontext_t& context) noexcept {
  greg_t* const registers = context.uc_mcontext.gregs;
  const auto* const wanted = reinterpret_cast<const stack_t*>(registers[REG_RDI]);
  auto* const old = reinterpret_cast<stack_t*>(registers[REG_RSI]);
  const std::optional<stack_t> asked = wanted != nullptr ? load(wanted) : std::nullopt;
  if (wanted != nullptr && !asked) {
    registers[REG_RAX] = -EFAULT;
    return;
  }
  const auto stack_pointer = static_cast<std::uintptr_t>(registers[REG_RSP]);
  const bool on_ours = is_on_signal_stack(stack_pointer);
  if (!on_ours) state.handler_stack = no_stack;  // of a handler that was left by a jump
  stack_t& current = on_ours && !keeps_stack(state.program_stack) ? state.handler_stack : state.program_stack;
  const bool in_use = keeps_stack(current) && (holds(current, stack_pointer) || (on_ours && same_place(current)));
  stack_t answer = current;
  answer.ss_flags = (current.ss_flags & disarms) | (current.ss_size == 0 ? SS_DISABLE : in_use ? SS_ONSTACK : 0);
  if (in_use && on_ours) {
    answer.ss_sp = state.signal_stack;
    answer.ss_size = signal_stack_bytes;
  }
  long failure = 0;
  if (asked) failure = in_use ? -EPERM : set_stack(current, *asked);
  if (failure == 0 && old != nullptr && !store(old, answer)) failure = -EFAULT;
  registers[REG_RAX] = failure;
}

// The kernel writes the current stack to the frame, and disarms one that wants it. The kernel's own view of the frame
// comes back when the handler ends, so the frame is marked: the child of a vfork has some from the kernel alone.
void enter_handler(ucontext_t& interrupted) noexcept {
  interrupted.uc_flags |= has_program_stack;
  interrupted.uc_stack = state.program_stack;
  if (!keeps_stack(state.program_stack)) state.program_stack = no_stack;
}

// The kernel puts back the stack that the handler found, unless the handler runs on the current one, and has made it
// that. It takes its stack pointer, that of the frame, for this.
void leave_handler(ucontext_t& interrupted) noexcept {
  if ((interrupted.uc_flags & has_program_stack) != 0) {
    const bool runs_on_current =
        keeps_stack(state.program_stack) && holds(state.program_stack, reinterpret_cast<std::uintptr_t>(&interrupted));
    // As to the kernel, an error means that nothing changes.
    if (!runs_on_current) static_cast<void>(set_stack(state.program_stack, interrupted.uc_stack));
    interrupted.uc_flags &= ~has_program_stack;
    return;
  }
  if (is_on_signal_stack(static_cast<std::uintptr_t>(interrupted.uc_mcontext.gregs[REG_RSP]))) return;
  if (keeps_stack(state.handler_stack) && same_place(state.handler_stack)) state.program_stack = state.handler_stack;
  state.handler_stack = no_stack;
}

void do_exit_thread(long status) {
  if (state.lent_to_child || state.signal_stack == nullptr) {
    far_raw_syscall(SYS_exit, status);
  }
  bool unmaps = false;
  {
    const undispatched_section section;
    release_calls_until(nullptr);
    unmaps = platform::forget_local(state.signal_stack, signal_stack_bytes);
  }
  if (!unmaps) far_raw_syscall(SYS_exit, status);
  far_end_thread(state.signal_stack, signal_stack_bytes, status);
}

}  // namespace far::preload
