#include "preload/relayed_handlers.h"

#include <sys/syscall.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/spin_lock.h"
#include "preload/syscall_stubs.h"
#include "preload/threads.h"

namespace far::preload {
namespace {

constexpr int signals = 64;

spin_lock exchanging;
// What the program asked for, where the kernel has relay_signal.
constinit std::array<std::atomic<void*>, signals + 1> handlers{};

// The kernel's frame of a handler, from the stack pointer that the handler starts with: its return address, the
// registers of what it interrupted, and the siginfo_t. Behind it, somewhere, lies the floating-point state.
constexpr std::size_t context_at = 8;
constexpr std::size_t info_at = context_at + offsetof(ucontext_t, uc_sigmask) + sizeof(kernel_mask);
constexpr std::size_t frame_bytes = info_at + sizeof(siginfo_t);
static_assert(info_at == 312 && context_at == 8);  // relay_signal has these numbers

struct moved_frame {
  std::byte* place;
  void* handler;
};

}  // namespace
}  // namespace far::preload

extern "C" {

#pragma GCC visibility push(hidden)

// The handler that the kernel knows. It continues as the program's on the moved frame, from which that returns as from
// any other.
extern const char far_relay_signal[];
far::preload::moved_frame far_move_frame(int number, std::byte* frame) noexcept;

#pragma GCC visibility pop

asm(R"(
  .text
  .globl far_relay_signal
  .hidden far_relay_signal
far_relay_signal:
  movl %edi, %ebx
  movq %rsp, %rsi
  subq $8, %rsp
  call far_move_frame
  movq %rdx, %r11
  movq %rax, %rsp
  movl %ebx, %edi
  leaq 312(%rsp), %rsi
  leaq 8(%rsp), %rdx
  xorl %eax, %eax
  jmp *%r11
)");

// As the kernel places a frame: below the red zone of what was interrupted. A handler that interrupts another one on
// our signal stack stays there.
far::preload::moved_frame far_move_frame(int number, std::byte* frame) noexcept {
  using namespace far::preload;
  void* const handler = handlers[static_cast<std::size_t>(number)].load(std::memory_order_relaxed);
  const auto& context = *reinterpret_cast<const ucontext_t*>(frame + context_at);
  const auto interrupted = static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RSP]);
  if (!is_on_signal_stack(reinterpret_cast<std::uintptr_t>(frame)) || is_on_signal_stack(interrupted)) {
    return {frame, handler};
  }
  std::uintptr_t top = interrupted - red_zone_bytes;
  std::byte* extended = nullptr;
  if (context.uc_mcontext.fpregs != nullptr) {
    const std::size_t bytes = extended_state_bytes(context.uc_mcontext.fpregs);
    top = (top - bytes) & ~std::uintptr_t{63};
    extended = reinterpret_cast<std::byte*>(top);
    std::memcpy(extended, context.uc_mcontext.fpregs, bytes);
  }
  auto* const place = reinterpret_cast<std::byte*>(((top - frame_bytes) & ~std::uintptr_t{15}) - sizeof(void*));
  std::memcpy(place, frame, frame_bytes);
  reinterpret_cast<ucontext_t*>(place + context_at)->uc_mcontext.fpregs = reinterpret_cast<fpregset_t>(extended);
  return {place, handler};
}

}  // extern "C"

namespace far::preload {
namespace {

bool is_function(const kernel_action& action) {
  return action.handler != reinterpret_cast<void*>(SIG_DFL) && action.handler != reinterpret_cast<void*>(SIG_IGN);
}

void* relay() {
  return const_cast<char*>(far_relay_signal);
}

}  // namespace

// A child that runs on our memory has signal actions of its own, but not this table: the kernel has its handlers.
long exchange_relayed_action(int number, const kernel_action* action, kernel_action* old,
                             std::size_t mask_bytes) noexcept {
  const thread_state& thread = this_thread();
  const bool known = number >= 1 && number <= signals;
  const bool relays = known && action != nullptr && is_function(*action) && (action->flags & SA_ONSTACK) == 0 &&
                      !thread.lent_to_child && !thread.shared_with_child;
  const undispatched_section section;  // a wait for the lock makes system calls, and SIGSYS is blocked here
  const lock_guard guard(exchanging);
  kernel_action given = action != nullptr ? *action : kernel_action{};
  void* const handler_before = known ? handlers[static_cast<std::size_t>(number)].load() : nullptr;
  if (relays) {
    handlers[static_cast<std::size_t>(number)] = given.handler;
    given.handler = relay();
    given.flags |= SA_ONSTACK;
  }
  const long result = far_raw_syscall(SYS_rt_sigaction, number, action != nullptr ? reinterpret_cast<long>(&given) : 0,
                                      reinterpret_cast<long>(old), static_cast<long>(mask_bytes));
  if (result == 0 && old->handler == relay()) {
    old->handler = handler_before;
    old->flags &= ~static_cast<unsigned long>(SA_ONSTACK);
  }
  return result;
}

void open_relayed_actions_in_child() noexcept {
  exchanging.open_in_child();
}

}  // namespace far::preload
