#include "preload/syscall_guard.h"

#if defined(__x86_64__)

#include <elf.h>
#include <errno.h>  // for program_invocation_short_name
#include <link.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/log.h"
#include "base/units.h"
#include "platform/kernel_features.h"
#include "platform/runtime_thread.h"
#include "preload/c_library.h"
#include "preload/device_writes.h"
#include "preload/direct_calls.h"
#include "preload/in_runtime.h"
#include "preload/program_memory.h"
#include "preload/raw_calls.h"
#include "preload/relayed_handlers.h"
#include "preload/resource_limits.h"
#include "preload/runtime.h"
#include "preload/signals.h"
#include "preload/syscall_memory.h"
#include "preload/syscall_stubs.h"
#include "preload/threads.h"
#include "preload/tracer.h"
#include "preload/waiting_masks.h"

namespace far::preload {
namespace {

constexpr int dispatched_by_kernel = 2;          // SYS_USER_DISPATCH, the si_code
constexpr unsigned machine_x86_64 = 0xc000003e;  // AUDIT_ARCH_X86_64

// fault_mode::thread
bool only_raw_calls = false;

constexpr std::array<int, 6> argument_registers{REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};

std::array<long, 6> arguments_of(const greg_t* registers) {
  std::array<long, 6> arguments{};
  for (std::size_t i = 0; i < arguments.size(); ++i) arguments[i] = registers[argument_registers[i]];
  return arguments;
}

greg_t address_of(const char* code) {
  return reinterpret_cast<greg_t>(code);
}

template <typename Value>
Value* pointer_to(long argument) {
  return reinterpret_cast<Value*>(argument);
}

void set_arguments(greg_t* registers, const std::array<long, 6>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) registers[argument_registers[i]] = arguments[i];
}

guarded_call* guard(const ucontext_t& context, long number) {
  pager::pager* const pager = active_pager();
  // The runtime's own calls touch nothing far, and its locks are held.
  if (only_raw_calls || pager == nullptr || platform::on_runtime_thread()) return nullptr;
  const int saved_errno = errno;
  const undispatched_section section;
  const bool is_limited = is_exec(number) && limits_before_exec();
  const platform::runtime_mark allocate_locally;
  const greg_t* const registers = context.uc_mcontext.gregs;
  const std::array<long, 6> arguments = arguments_of(registers);
  this_thread().system_call = &context;
  const bool anyway = is_limited || is_process_transfer(number) || blocks_ours(number, arguments);
  guarded_call* const call =
      guard_call(*pager, number, arguments, anyway, static_cast<std::uintptr_t>(registers[REG_RSP]));
  this_thread().system_call = nullptr;
  errno = saved_errno;
  return call;
}

void prepare_guarded(greg_t* registers, const guarded_call& call, pushed_call& pushed) {
  std::array<long, 6> arguments = call.arguments;
  replace_mask(call.number, arguments, pushed.scratch);
  set_arguments(registers, arguments);
  registers[REG_RAX] = call.number;
  registers[REG_RIP] = address_of(far_guarded_call);
}

// A call that waits with another mask, where only raw calls are noticed. Its end is not reported: the C library, the
// loader and all between them make calls that are not dispatched, and that part of the stubs may be among it.
void prepare_masked(greg_t* registers, long number, pushed_call& pushed) {
  std::array<long, 6> arguments = arguments_of(registers);
  pushed.kept_rdi = registers[REG_RDI];
  pushed.kept_r10 = registers[REG_R10];
  pushed.kept_r8 = registers[REG_R8];
  pushed.kept_r9 = registers[REG_R9];
  replace_mask(number, arguments, pushed.scratch);
  set_arguments(registers, arguments);
  registers[REG_RIP] = address_of(far_masked_call);
}

// Prepares the thread to make the call after we return to it.
void make_call(ucontext_t& context, long number) {
  greg_t* const registers = context.uc_mcontext.gregs;
  guarded_call* const call = guard(context, number);
  registers[REG_RSP] -= static_cast<greg_t>(far_pushed_bytes);
  auto* const pushed = reinterpret_cast<pushed_call*>(registers[REG_RSP]);
  pushed->return_address = static_cast<unsigned long>(registers[REG_RIP]);
  registers[REG_RAX] = number;
  registers[REG_RIP] = address_of(far_plain_call);
  if (only_raw_calls && blocks_ours(number, arguments_of(registers))) prepare_masked(registers, number, *pushed);
  if (call == nullptr) return;
  pushed->guarded = call;
  prepare_guarded(registers, *call, *pushed);
}

// The call that make_call prepared has been made.
void end_call(ucontext_t& context) {
  greg_t* const registers = context.uc_mcontext.gregs;
  auto* const pushed = reinterpret_cast<pushed_call*>(registers[REG_RSP]);
  auto* const call = static_cast<guarded_call*>(pushed->guarded);
  const int saved_errno = errno;
  const undispatched_section section;
  const platform::runtime_mark allocate_locally;
  long result = pushed->result;
  const bool known = is_under_way(call);
  this_thread().system_call = &context;
  const bool goes_on = known && wants_another_part(*active_pager(), *call, &result);
  this_thread().system_call = nullptr;
  if (goes_on) {
    prepare_guarded(registers, *call, *pushed);
  } else {
    // The kernel leaves every register but the result as it was.
    if (known) set_arguments(registers, call->original);
    registers[REG_RAX] = result;
    registers[REG_RIP] = static_cast<greg_t>(pushed->return_address);
    registers[REG_RSP] += static_cast<greg_t>(far_pushed_bytes);
    if (known && is_exec(call->number)) limits_after_exec();
    if (known) release_call(*call);
  }
  errno = saved_errno;
}

void give_result(ucontext_t& context, long result) {
  context.uc_mcontext.gregs[REG_RAX] = result;
}

// rt_sigprocmask. It changes the mask that the thread will have again when we return to it.
void change_mask(ucontext_t& context) {
  greg_t* const registers = context.uc_mcontext.gregs;
  const auto* const place = pointer_to<const kernel_mask>(registers[REG_RSI]);
  auto* const old = pointer_to<kernel_mask>(registers[REG_RDX]);
  kernel_mask before = 0;
  std::memcpy(&before, &context.uc_sigmask, sizeof before);
  kernel_mask after = before;
  const std::optional<kernel_mask> given = place != nullptr ? load(place) : std::nullopt;
  if (place != nullptr && !given) return give_result(context, -EFAULT);
  if (given) {
    switch (registers[REG_RDI]) {
      case SIG_BLOCK: after |= *given; break;
      case SIG_UNBLOCK: after &= ~*given; break;
      case SIG_SETMASK: after = *given; break;
      default: return give_result(context, -EINVAL);
    }
  }
  // A thread that blocked our signals would die of its next miss or system call.
  after = without_ours(after);
  std::memcpy(&context.uc_sigmask, &after, sizeof after);
  give_result(context, old == nullptr || store(old, before) ? 0 : -EFAULT);
}

// rt_sigaction, with copies of its arguments, which cannot be far.
void change_action(ucontext_t& context) {
  greg_t* const registers = context.uc_mcontext.gregs;
  const int number = static_cast<int>(registers[REG_RDI]);
  const auto* const place = pointer_to<const kernel_action>(registers[REG_RSI]);
  auto* const old = pointer_to<kernel_action>(registers[REG_RDX]);
  if (registers[REG_R10] != sizeof(kernel_mask)) return give_result(context, -EINVAL);
  const std::optional<kernel_action> given = place != nullptr ? load(place) : std::nullopt;
  if (place != nullptr && !given) return give_result(context, -EFAULT);
  kernel_action action = given.value_or(kernel_action{});
  action.mask = without_ours(action.mask);
  kernel_action before{};
  long result = 0;
  if (signal_is_ours(number)) {
    exchange_program_action(number, given ? &action : nullptr, &before);
  } else if (only_raw_calls) {
    result = far_raw_syscall(SYS_rt_sigaction, number, given ? reinterpret_cast<long>(&action) : 0,
                             reinterpret_cast<long>(&before), registers[REG_R10]);
  } else {
    result = exchange_relayed_action(number, given ? &action : nullptr, &before,
                                     static_cast<std::size_t>(registers[REG_R10]));
  }
  if (result == 0 && old != nullptr && !store(old, before)) result = -EFAULT;
  give_result(context, result);
}

// Where misses of the kernel are resolved, it does all of that itself. The call is made by our code, which is not
// dispatched.
void return_by_kernel(ucontext_t& context) {
  greg_t* const registers = context.uc_mcontext.gregs;
  ucontext_t& interrupted = interrupted_by_handler(context);
  const kernel_mask mask = mask_to_restore(interrupted);
  std::memcpy(&interrupted.uc_sigmask, &mask, sizeof mask);
  registers[REG_RAX] = SYS_rt_sigreturn;
  registers[REG_RIP] = address_of(far_signal_return_call);
}

// Saves the trace before calls after which none of our code may run in this process.
void save_trace(long number) {
  if (!trace_is_on || platform::on_runtime_thread()) return;
  const undispatched_section section;
  switch (number) {
    case SYS_execve:
    case SYS_execveat:
    case SYS_exit_group: return write_trace();
    case SYS_kill:
    case SYS_tkill:
    case SYS_tgkill: return write_buffered_trace();
    default: return;
  }
}

// Whether the call is about memory, and has been made by now.
bool served(ucontext_t& context, long number) {
  greg_t* const registers = context.uc_mcontext.gregs;
  const undispatched_section section;
  long result = 0;
  if (!serve_raw_call(number, arguments_of(registers), &result)) return false;
  registers[REG_RAX] = result;
  return true;
}

// Whether it was a transfer within this process, which has been made by now.
bool served_own_transfer(ucontext_t& context, long number) {
  pager::pager* const pager = active_pager();
  if (only_raw_calls || pager == nullptr || platform::on_runtime_thread()) return false;
  const int saved_errno = errno;
  const undispatched_section section;
  const platform::runtime_mark allocate_locally;
  greg_t* const registers = context.uc_mcontext.gregs;
  long result = 0;
  this_thread().system_call = &context;
  const bool is_served = serve_own_transfer(*pager, number, arguments_of(registers), &result);
  this_thread().system_call = nullptr;
  if (is_served) registers[REG_RAX] = result;
  errno = saved_errno;
  return is_served;
}

// Refuses calls whose memory the kernel or a device would touch at a time when nobody can resolve misses. Returns
// whether the call is over.
bool refuse_if_unsafe(greg_t* registers, long number) {
  const bool is_asynchronous = number == SYS_io_uring_setup || number == SYS_io_setup;
  const bool may_be_machine = !only_raw_calls && number == SYS_ioctl && active_pager() != nullptr;
  if (!refuses_device_writes && !may_be_machine && (only_raw_calls || !is_asynchronous)) return false;
  if (platform::on_runtime_thread()) return false;
  const int saved_errno = errno;
  const undispatched_section section;
  const platform::runtime_mark allocate_locally;
  const refusal reason = refuses_device_writes ? refusal::device_writes : refusal::asynchronous_calls;
  long refused = refuse_call(reason, number, arguments_of(registers));
  const bool refuses_machine =
      refused == 0 && may_be_machine && gives_far_memory_to_machine(*active_pager(), number, arguments_of(registers));
  if (refuses_machine) refused = refuse_machine();
  errno = saved_errno;
  if (refused == 0) return false;
  registers[REG_RAX] = refused;
  return true;
}

// In fault_mode::in_line the missing thread itself calls the kernel, under the restrictions that the program gives its
// threads.
void warn_of_filter(long number, const greg_t* registers) {
  static std::atomic<bool> is_said{false};
  const bool sets_filter = number == SYS_seccomp || (number == SYS_prctl && registers[REG_RDI] == PR_SET_SECCOMP);
  if (only_raw_calls || !sets_filter || platform::on_runtime_thread() || is_said.exchange(true)) return;
  const int saved_errno = errno;
  const undispatched_section section;
  const platform::runtime_mark allocate_locally;
  log_line(log_level::warning,
           "process %d (%s) restricts its system calls by seccomp; in the inline mode its threads need those of the "
           "runtime as well. If it is stopped, use --fault-mode thread",
           static_cast<int>(getpid()), program_invocation_short_name);
  errno = saved_errno;
}

// The program's own dispatch of system calls (PR_SET_SYSCALL_USER_DISPATCH) would end ours on this thread: its next
// call would go to the kernel with far memory, and nobody would keep it from blocking our signals. So it is told what a
// kernel without it says; that it is off is true for the program.
bool refuses_dispatch(greg_t* registers, long number) {
  constexpr greg_t set_syscall_user_dispatch = 59;
  constexpr greg_t dispatch_off = 0;
  if (number != SYS_prctl || registers[REG_RDI] != set_syscall_user_dispatch) return false;
  if (platform::on_runtime_thread()) return false;
  const bool ends_it = registers[REG_RSI] == dispatch_off && registers[REG_RDX] == 0 && registers[REG_R10] == 0 &&
                       registers[REG_R8] == 0;
  registers[REG_RAX] = ends_it ? 0 : -EINVAL;
  return true;
}

// A child of vfork that asks to be traced by its parent (gdb) must not meet a signal before its exec: it would stop for
// the parent, which cannot continue before that. So the request is made right before the exec, and both are made here.
bool waits_for_exec(greg_t* registers, long number) {
  if (number != SYS_ptrace || registers[REG_RDI] != PTRACE_TRACEME || !this_thread().lent_to_child) return false;
  this_thread().wants_tracer = true;
  registers[REG_RAX] = 0;
  return true;
}

bool served_traced_exec(ucontext_t& context, long number) {
  if (!is_exec(number) || !this_thread().wants_tracer) return false;
  this_thread().wants_tracer = false;
  greg_t* const registers = context.uc_mcontext.gregs;
  guarded_call* const held = guard(context, number);
  kernel_mask mask = 0;
  std::memcpy(&mask, &context.uc_sigmask, sizeof mask);
  far_raw_syscall(SYS_ptrace, PTRACE_TRACEME);
  far_raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&mask), 0, sizeof mask);
  const std::array<long, 6> given = arguments_of(registers);
  registers[REG_RAX] = far_raw_syscall(number, given[0], given[1], given[2], given[3], given[4]);
  // It failed, and the child will end. Now every signal stops it.
  this_thread().selector = selector_undispatched;
  if (held != nullptr) release_call(*held);
  return true;
}

// Calls that change signals, stacks or threads are served here, because they would undo the dispatch itself. All others
// only need their memory made resident first.
void on_dispatched(ucontext_t& context, long number) {
  greg_t* const registers = context.uc_mcontext.gregs;
  if (registers[REG_RIP] == address_of(far_guarded_return)) return end_call(context);
  if (refuse_if_unsafe(registers, number)) return;
  warn_of_filter(number, registers);
  if (refuses_dispatch(registers, number)) return;
  switch (number) {
    case SYS_rt_sigreturn: return return_by_kernel(context);
    case SYS_sigaltstack:
      if (only_raw_calls) break;
      return do_sigaltstack(context);
    case SYS_clone:
    case SYS_clone3:
    case SYS_fork:
    case SYS_vfork: return do_clone(context, number);
    case SYS_rt_sigaction: return change_action(context);
    case SYS_process_vm_readv:
    case SYS_process_vm_writev:
      if (served_own_transfer(context, number)) return;
      break;
    case SYS_rt_sigprocmask:
      if (registers[REG_R10] == sizeof(kernel_mask)) return change_mask(context);
      break;
    default: break;
  }
  if (!only_raw_calls && waits_for_exec(registers, number)) return;
  save_trace(number);
  if (served(context, number) || served_traced_exec(context, number)) return;
  if (number == SYS_exit && !only_raw_calls) do_exit_thread(registers[REG_RDI]);
  if (only_raw_calls && is_exec(number) && exec_is_watched()) return do_watched_call(context, number);
  make_call(context, number);
}

// Whether the registers that the kernel saved lie where make_call() pushes: on the thread's own stack they end right
// below its red zone.
bool reaches_into_pushed(const ucontext_t& interrupted) {
  const auto first = reinterpret_cast<std::uintptr_t>(interrupted.uc_mcontext.fpregs);
  if (first == 0) return false;
  const auto stack = static_cast<std::uintptr_t>(interrupted.uc_mcontext.gregs[REG_RSP]);
  return first < stack && first + extended_state_bytes(interrupted.uc_mcontext.fpregs) > stack - far_pushed_bytes;
}

// Whether the handler runs on a stack of the program's, which may be small, as a coroutine's, and far; or on one that
// the child of a vfork would go on with, since the program is in a handler there.
bool is_on_stack_of_program(const ucontext_t& interrupted, long number) {
  const auto stack = static_cast<std::uintptr_t>(interrupted.uc_mcontext.gregs[REG_RSP]);
  return only_raw_calls || (makes_child(number) && is_on_signal_stack(stack));
}

// On a stack of the program's, the saved registers are moved out of the way, and the call is served on a local stack.
void on_sigsys(int signal, siginfo_t* info, void* context) {
  auto& interrupted = *static_cast<ucontext_t*>(context);
  if (info->si_code != dispatched_by_kernel) return pass_to_program(signal, info, interrupted);
  if (info->si_arch != machine_x86_64) {
    interrupted.uc_mcontext.gregs[REG_RAX] = -ENOSYS;  // a call of the 32-bit interface; this is a 64-bit program
    return;
  }
  if (!only_raw_calls && info->si_syscall == SYS_rt_sigreturn) {
    return return_from_handler(interrupted, __builtin_alloca(bytes_to_restore(interrupted) + alignment_of_registers));
  }
  if (!is_on_stack_of_program(interrupted, info->si_syscall)) return on_dispatched(interrupted, info->si_syscall);
  if (reaches_into_pushed(interrupted)) {
    const void* const registers = interrupted.uc_mcontext.fpregs;
    const std::size_t bytes = extended_state_bytes(registers);
    move_registers(interrupted, registers, bytes, __builtin_alloca(bytes + alignment_of_registers));
  }
  struct {
    ucontext_t& context;
    long number;
  } call{interrupted, info->si_syscall};
  const undispatched_section section;
  call_on_local_stack(
      [](void* request) {
        const auto& interruption = *static_cast<decltype(call)*>(request);
        // Where call_on_stack() has left it.
        this_thread().handler_end = *static_cast<std::byte**>(__builtin_frame_address(0));
        on_dispatched(interruption.context, interruption.number);
      },
      &call);
}

// The range whose calls are not dispatched: the C library, whose functions are interposed, and this library; also the
// loader and the kernel's own code (clocks) if they lie near enough, since their calls do not concern us. Libraries
// that lie between these are not dispatched, either.
code_range allowed_code() {
  code_range all{reinterpret_cast<std::uintptr_t>(far_stubs_begin),
                 static_cast<std::uintptr_t>(far_stubs_end - far_stubs_begin)};
  const auto include = [&all](const code_range& more) {
    constexpr std::uintptr_t most_bytes = gib;
    if (more.bytes == 0) return;
    const std::uintptr_t start = std::min(all.start, more.start);
    const std::uintptr_t end = std::max(all.start + all.bytes, more.start + more.bytes);
    if (end - start <= most_bytes) all = {start, end - start};
  };
  include(c_library_code());
  include(loader_code());
  constexpr std::uintptr_t kernel_code_bytes = 2 * page_bytes;
  if (const unsigned long kernel_code = getauxval(AT_SYSINFO_EHDR)) include({kernel_code, kernel_code_bytes});
  return all;
}

// Whether an object that lies outside `allowed` has the bytes of a system call in its code. They may be part of another
// instruction; then calls are dispatched needlessly.
int has_raw_calls(dl_phdr_info* object, std::size_t, void* context) {
  const auto& allowed = *static_cast<const code_range*>(context);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0 || (segment.p_flags & PF_R) == 0) continue;
    const std::uintptr_t start = object->dlpi_addr + segment.p_vaddr;
    if (allowed.holds(start)) continue;
    if (memmem(reinterpret_cast<const void*>(start), segment.p_memsz, "\x0f\x05", 2) != nullptr) return 1;
  }
  return 0;
}

}  // namespace

bool prepare_system_calls() {
  look_out_for_device_writes();
  // A trace shows where the program called the kernel, which only a handler can see.
  if (trace_is_on) return false;
  const result<std::size_t> taken = take_over_call_sites(true);
  if (taken) {
    log_line(log_level::verbose, "%zu call sites of the C library are taken over", taken.value());
  } else {
    log_line(log_level::verbose, "each system call would cost a signal (%s)", taken.error().message.c_str());
  }
  return taken.ok();
}

result<void> guard_system_calls(bool far_elsewhere) {
  take_signals(on_sigsys, true);
  look_at_direct_calls(*active_pager(), far_elsewhere, refuses_device_writes);
  return arm_this_thread();
}

result<void> notice_raw_calls() {
  if (!platform::probe_kernel().syscall_user_dispatch) return error{"no system call user dispatch here", ENOSYS};
  code_range allowed = allowed_code();
  if (dl_iterate_phdr(has_raw_calls, &allowed) == 0) return {};
  look_out_for_device_writes();
  find_next_vfork();
  take_signals(on_sigsys, false);
  only_raw_calls = true;
  const result<void> armed = arm_for_raw_calls(allowed.start, allowed.bytes);
  only_raw_calls = armed.ok();
  return armed;
}

bool takes_sigsys() noexcept {
  return only_raw_calls;
}

void guard_started_thread() noexcept {
  arm_started_thread();
}

void guard_child() noexcept {
  open_program_actions_in_child();
  open_relayed_actions_in_child();
  look_out_for_device_writes_in_child();
  arm_child();
}

unsigned char let_calls_through() noexcept {
  return suspend_raw_calls();
}

void notice_calls_again(unsigned char before) noexcept {
  resume_raw_calls(before);
}

void for_each_pinned_by_calls(void (*visit)(void* context, std::span<const std::byte> bytes), void* context) noexcept {
  for (const guarded_call* call = this_thread().calls; call != nullptr; call = call->next) {
    for (const pinned_run& run : std::span(call->runs, call->run_count)) {
      visit(context, {run.first, run.pages << page_shift});
    }
  }
}

}  // namespace far::preload

#else

#include <cerrno>

#include "preload/direct_calls.h"

namespace far::preload {

bool prepare_system_calls() {
  return false;
}

result<void> guard_system_calls(bool /*far_elsewhere*/) {
  return error{"--fault-mode inline runs unmodified programs on x86-64 only; use --fault-mode thread", ENOSYS};
}

result<void> notice_raw_calls() {
  return error{"the kernel dispatches no system calls on this machine", ENOSYS};
}
bool takes_sigsys() noexcept {
  return false;
}

void prepare_watched_calls() {}
void watch_exec() noexcept {}
void watch_transfers() noexcept {}

void guard_started_thread() noexcept {}
void guard_child() noexcept {}
unsigned char let_calls_through() noexcept {
  return 0;
}
void notice_calls_again(unsigned char) noexcept {}
void for_each_pinned_by_calls(void (*)(void*, std::span<const std::byte>), void*) noexcept {}

}  // namespace far::preload

#endif
