#include "fiber/overflow.h"

#include <signal.h>

#include "base/check.h"
#include "base/log.h"
#include "base/spin_lock.h"
#include "base/units.h"
#include "fiber/control_block.h"
#include "fiber/stack_pool.h"
#include "fiber/worker.h"
#include "platform/fault_context.h"
#include "platform/local_memory.h"

namespace far::fiber {
namespace {

constexpr std::size_t signal_stack_bytes = 64 * kib;

constinit spin_lock watch_lock;
constinit unsigned watches FAR_GUARDED_BY(watch_lock) = 0;
// The program had put a handler of its own over ours when the last watch ended. It may call ours.
constinit bool is_left_below FAR_GUARDED_BY(watch_lock) = false;
constinit struct sigaction before{};

bool in_guard(const control_block& fiber, const void* address) {
  const auto* const low = static_cast<const std::byte*>(fiber.memory.low);
  return address < low && address >= low - stack_pool::guard_bytes;
}

bool overflowed(const control_block& fiber, const siginfo_t& info, const void* context) {
  const void* const stack_pointer = platform::interrupted_stack_pointer(context);
  if (in_guard(fiber, info.si_addr) || in_guard(fiber, stack_pointer)) return true;
  // The kernel found no room for the frame of another signal: then there is no address.
  return info.si_code == SI_KERNEL && fiber.memory.holds(stack_pointer) &&
         stack_pointer < fiber.memory.low + signal_frame_bytes();
}

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
  if (before.sa_handler == SIG_IGN) return;
  if (before.sa_handler != SIG_DFL) return before.sa_handler(signal);
  // To die of it: put the default back and let the access fault again.
  ::signal(SIGSEGV, SIG_DFL);
}

void on_segv(int signal, siginfo_t* info, void* context) {
  const control_block* const fiber = current_fiber();
  if (fiber == nullptr || !overflowed(*fiber, *info, context)) return pass_on(signal, info, context);
  log_line(
      log_level::error,
      "fiber '%s' (number %llu) ran out of its stack of %zu KiB; give it more (spawn_options::stack_bytes), or let it "
      "recurse less deeply and keep large arrays elsewhere",
      fiber->name, static_cast<unsigned long long>(fiber->number), fiber->memory.bytes / std::size_t{kib});
  ::signal(SIGSEGV, SIG_DFL);  // the access faults again, and the core dump shows where
}

}  // namespace

// Where ours may be below the program's handler already, it must not come over it as well: each would call the other.
// Who runs out of stack is named then if the program's handler calls those before it.
void watch_for_overflows() {
  const lock_guard guard(watch_lock);
  if (watches++ > 0) return;
  struct sigaction now{};
  FAR_CHECK(sigaction(SIGSEGV, nullptr, &now) == 0, "SIGSEGV has an action");
  const bool is_handled = (now.sa_flags & SA_SIGINFO) != 0 || (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN);
  if (is_left_below && is_handled) return;
  struct sigaction ours{};
  ours.sa_sigaction = on_segv;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  FAR_CHECK(sigaction(SIGSEGV, &ours, &before) == 0, "SIGSEGV can be handled");
}

void stop_watching_for_overflows() noexcept {
  const lock_guard guard(watch_lock);
  if (--watches > 0) return;
  struct sigaction now{};
  sigaction(SIGSEGV, nullptr, &now);
  is_left_below = (now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != on_segv;
  if (!is_left_below) sigaction(SIGSEGV, &before, nullptr);
}

overflow_stack::overflow_stack() : low_(platform::map_local(signal_stack_bytes)) {
  const stack_t ours{.ss_sp = low_, .ss_flags = 0, .ss_size = signal_stack_bytes};
  FAR_CHECK(sigaltstack(&ours, nullptr) == 0, "a thread can have a signal stack");
}

overflow_stack::~overflow_stack() {
  const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  sigaltstack(&none, nullptr);
  platform::unmap_local(low_, signal_stack_bytes);
}

}  // namespace far::fiber
