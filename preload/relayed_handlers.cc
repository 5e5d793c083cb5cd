#include "preload/relayed_handlers.h"

#include <sys/syscall.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/spin_lock.h"
#include "base/units.h"
#include "preload/syscall_stubs.h"
#include "preload/threads.h"

namespace far::preload {
namespace {

constexpr int signals = 64;

spin_lock exchanging;
// What a handler finds below its frame on a signal stack of the program's: of smaller ones our part of the C library's
// calls would take too much.
constexpr std::size_t least_room_bytes = std::size_t{8} << 10;
// What the program asked for, where the kernel has relay_signal: the handler, and in the same word, of which addresses
// leave this bit free, SA_ONSTACK.
constinit std::array<std::atomic<std::uintptr_t>, signals + 1> handlers{};
constexpr std::uintptr_t on_stack = std::uintptr_t{1} << 63;

// The kernel's frame of a handler, from the stack pointer that the handler starts with: its return address, the
// registers of what it interrupted, and the siginfo_t. Behind it, somewhere, lies the floating-point state.
constexpr std::size_t context_at = 8;
constexpr std::size_t info_at = context_at + offsetof(ucontext_t, uc_sigmask) + sizeof(kernel_mask);
constexpr std::size_t frame_bytes = info_at + sizeof(siginfo_t);
// far_relay_signal has these numbers.
static_assert(info_at == 312 && context_at == 8 && context_at + offsetof(ucontext_t, uc_link) == 16);
static_assert(SYS_rt_sigprocmask == 14 && SIG_BLOCK == 0 && SIGBUS == 7 && SIGSEGV == 11 && SIGSYS == 31);

struct moved_frame {
  std::byte* place;
  void* handler;
};

ucontext_t& context_of(std::byte* frame) {
  return *reinterpret_cast<ucontext_t*>(frame + context_at);
}

std::uintptr_t word_of(const kernel_action& action) {
  return reinterpret_cast<std::uintptr_t>(action.handler) | ((action.flags & SA_ONSTACK) != 0 ? on_stack : 0);
}

std::uintptr_t word_of(int number) {
  return handlers[static_cast<std::size_t>(number)].load(std::memory_order_relaxed);
}

void* handler_of(int number) {
  return reinterpret_cast<void*>(word_of(number) & ~on_stack);
}

// Where the parts of a frame go that ends at `top`.
struct frame_places {
  std::uintptr_t extended;
  std::uintptr_t frame;
};

frame_places places_below(std::uintptr_t top, std::size_t extended_bytes) {
  const std::uintptr_t extended = (top - extended_bytes) & ~std::uintptr_t{63};
  return {extended, ((extended - frame_bytes) & ~std::uintptr_t{15}) - sizeof(void*)};
}

// Copies a frame to where the kernel places frames: to the top of the program's signal stack, where the handler wants
// it and does not interrupt another one there, else below the red zone of what was interrupted. It stays where it is if
// it interrupts a handler on our signal stack, or has little room on the program's.
std::byte* copy_frame(int number, std::byte* frame) {
  const ucontext_t& context = context_of(frame);
  const auto interrupted = static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RSP]);
  if (!is_on_signal_stack(reinterpret_cast<std::uintptr_t>(frame)) || is_on_signal_stack(interrupted)) return frame;
  const void* const registers = context.uc_mcontext.fpregs;
  const std::size_t extended_bytes = registers != nullptr ? extended_state_bytes(registers) : 0;
  frame_places places = places_below(interrupted - red_zone_bytes, extended_bytes);
  const stack_t& stack = this_thread().program_stack;
  const auto first = reinterpret_cast<std::uintptr_t>(stack.ss_sp);
  if (keeps_stack(stack) && holds(stack, interrupted)) {
    if (!holds(stack, places.frame)) return frame;
  } else if ((word_of(number) & on_stack) != 0 && stack.ss_size != 0) {
    places = places_below(first + stack.ss_size, extended_bytes);
    if (places.frame < first + least_room_bytes) return frame;
  }
  std::byte* extended = nullptr;
  if (registers != nullptr) {
    extended = reinterpret_cast<std::byte*>(places.extended);
    std::memcpy(extended, registers, extended_bytes);
  }
  auto* const place = reinterpret_cast<std::byte*>(places.frame);
  std::memcpy(place, frame, frame_bytes);
  context_of(place).uc_mcontext.fpregs = reinterpret_cast<fpregset_t>(extended);
  enter_handler(context_of(place));
  return place;
}

// The kernel pushes the frames of all signals that it delivers at once, each as if it interrupted the handler of the
// one before in its first instruction. So that frame is moved first, and what was interrupted is the program's handler.
std::byte* move_frame(int number, std::byte* frame) {
  ucontext_t& context = context_of(frame);
  context.uc_link = nullptr;  // as the kernel left it
  greg_t* const registers = context.uc_mcontext.gregs;
  const auto interrupted = static_cast<std::uintptr_t>(registers[REG_RIP]);
  const auto unshut = reinterpret_cast<std::uintptr_t>(far_relay_signal);
  if (interrupted - unshut < reinterpret_cast<std::uintptr_t>(far_relay_shut) - unshut) {
    const auto before = static_cast<int>(registers[interrupted == unshut ? REG_RDI : REG_RBX]);  // as it moves it first
    std::byte* const place = move_frame(before, reinterpret_cast<std::byte*>(registers[REG_RSP]));
    registers[REG_RSP] = reinterpret_cast<greg_t>(place);
    registers[REG_RIP] = reinterpret_cast<greg_t>(handler_of(before));
    registers[REG_RDI] = before;
    registers[REG_RSI] = reinterpret_cast<greg_t>(place + info_at);
    registers[REG_RDX] = reinterpret_cast<greg_t>(place + context_at);
    registers[REG_RAX] = 0;
  }
  return copy_frame(number, frame);
}

}  // namespace
}  // namespace far::preload

extern "C" {

#pragma GCC visibility push(hidden)

// For far_relay_signal.
far::preload::moved_frame far_move_frame(int number, std::byte* frame) noexcept;
void far_open_signals(far::preload::kernel_mask mask) noexcept;

#pragma GCC visibility pop

far::preload::moved_frame far_move_frame(int number, std::byte* frame) noexcept {
  // Where there is no stack to move it to, the kernel would have found none either, and ended the process.
  static constexpr far::preload::kernel_mask fault = far::preload::kernel_mask{1} << (SIGSEGV - 1);
  if (number == SIGSEGV)
    far_raw_syscall(SYS_rt_sigprocmask, SIG_BLOCK, reinterpret_cast<long>(&fault), 0, sizeof fault);
  return {far::preload::move_frame(number, frame), far::preload::handler_of(number)};
}

// On the program's stack, which may be far: the kernel gets no address on it.
void far_open_signals(far::preload::kernel_mask mask) noexcept {
  far::preload::kernel_mask& given = far::preload::this_thread().handler_mask;
  given = mask;
  far_raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&given), 0, sizeof given);
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

bool has_relay(int number) {
  kernel_action now{};
  far_raw_syscall(SYS_rt_sigaction, number, 0, reinterpret_cast<long>(&now), sizeof now.mask);
  return now.handler == relay();
}

}  // namespace

// A child that runs on our memory has signal actions of its own, but not this table: the kernel has its handlers.
long exchange_relayed_action(int number, const kernel_action* action, kernel_action* old,
                             std::size_t mask_bytes) noexcept {
  const thread_state& thread = this_thread();
  const bool known = number >= 1 && number <= signals;
  const bool relays =
      known && action != nullptr && is_function(*action) && !thread.lent_to_child && !thread.shared_with_child;
  const undispatched_section section;  // a wait for the lock makes system calls, and SIGSYS is blocked here
  const lock_guard guard(exchanging);
  kernel_action given = action != nullptr ? *action : kernel_action{};
  std::atomic<std::uintptr_t>* const handler = known ? &handlers[static_cast<std::size_t>(number)] : nullptr;
  const std::uintptr_t word_before = known ? handler->load() : 0;
  // While the kernel has the relay, the table changes after it, as it may refuse; else before it, for the first signal.
  const bool relayed = relays && has_relay(number);
  if (relays) {
    if (!relayed) handler->store(word_of(*action));
    given.handler = relay();
    given.flags |= SA_ONSTACK;
  }
  const long result = far_raw_syscall(SYS_rt_sigaction, number, action != nullptr ? reinterpret_cast<long>(&given) : 0,
                                      reinterpret_cast<long>(old), static_cast<long>(mask_bytes));
  if (result == 0 && relayed) handler->store(word_of(*action));
  if (result == 0 && old->handler == relay()) {
    old->handler = reinterpret_cast<void*>(word_before & ~on_stack);
    if ((word_before & on_stack) == 0) old->flags &= ~static_cast<unsigned long>(SA_ONSTACK);
  }
  return result;
}

void open_relayed_actions_in_child() noexcept {
  exchanging.open_in_child();
}

void move_registers(ucontext_t& context, const void* from, std::size_t bytes, void* room) noexcept {
  const std::uintptr_t place = round_up(reinterpret_cast<std::uintptr_t>(room), alignment_of_registers);
  void* const copy = reinterpret_cast<void*>(place);
  std::memcpy(copy, from, bytes);
  context.uc_mcontext.fpregs = static_cast<fpregset_t>(copy);
}

ucontext_t& interrupted_by_handler(const ucontext_t& context) noexcept {
  return *reinterpret_cast<ucontext_t*>(context.uc_mcontext.gregs[REG_RSP]);
}

std::size_t bytes_to_restore(const ucontext_t& context) noexcept {
  const void* const theirs = interrupted_by_handler(context).uc_mcontext.fpregs;
  const void* const ours = context.uc_mcontext.fpregs;
  if (theirs == nullptr || ours == nullptr) return 0;
  return std::min(extended_state_bytes(theirs), extended_state_bytes(ours));
}

kernel_mask mask_to_restore(const ucontext_t& interrupted) noexcept {
  kernel_mask mask = 0;
  std::memcpy(&mask, &interrupted.uc_sigmask, sizeof mask);
  return without_ours(mask);
}

void return_from_handler(ucontext_t& context, void* room) noexcept {
  ucontext_t& interrupted = interrupted_by_handler(context);
  const std::size_t bytes = bytes_to_restore(context);
  const kernel_mask mask = mask_to_restore(interrupted);
  leave_handler(interrupted);
  context.uc_flags = interrupted.uc_flags;
  std::memcpy(&context.uc_sigmask, &mask, sizeof mask);
  if (bytes > 0) {
    move_registers(context, interrupted.uc_mcontext.fpregs, bytes, room);
  } else {
    context.uc_mcontext.fpregs = nullptr;  // the kernel's initial state
  }
  std::memcpy(context.uc_mcontext.gregs, interrupted.uc_mcontext.gregs, sizeof context.uc_mcontext.gregs);
}

}  // namespace far::preload
