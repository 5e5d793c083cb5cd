#include "preload/signals.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/spin_lock.h"
#include "pager/far_pager.h"
#include "pager/inline_guard.h"
#include "platform/cancellation.h"
#include "platform/runtime_thread.h"
#include "preload/runtime.h"
#include "preload/syscall_stubs.h"
#include "preload/threads.h"

namespace far::preload {
namespace {

constexpr unsigned long restorer_given = 0x04000000;  // SA_RESTORER
constexpr int signals = 64;

constexpr kernel_mask bit_of(int number) {
  return kernel_mask{1} << (number - 1);
}

struct program_actions {
  spin_lock lock;
  kernel_action of_sigbus FAR_GUARDED_BY(lock){};
  kernel_action of_sigsys FAR_GUARDED_BY(lock){};
};
constinit program_actions wanted;

constinit kernel_mask taken = 0;

constinit own_action for_sigbus{};
constinit own_action for_sigsys{};
constinit const own_action* installed = nullptr;

kernel_action& wanted_for(int number) FAR_REQUIRES(wanted.lock) {
  return number == SIGBUS ? wanted.of_sigbus : wanted.of_sigsys;
}

long kernel_sigaction(int number, const kernel_action* action, kernel_action* old) {
  return far_raw_syscall(SYS_rt_sigaction, number, reinterpret_cast<long>(action), reinterpret_cast<long>(old),
                         sizeof(kernel_mask));
}

void set_mask(kernel_mask mask) {
  far_raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&mask), 0, sizeof mask);
}

kernel_mask mask_of(const ucontext_t& context) {
  kernel_mask mask = 0;
  std::memcpy(&mask, &context.uc_sigmask, sizeof mask);
  return mask;
}

void on_sigbus(int number, siginfo_t* info, void* context) {
  pager::pager* const pager = active_pager();
  if (pager == nullptr || !pager::may_be_miss(*info) || !pager->contains(info->si_addr)) {
    return pass_to_program(number, info, *static_cast<ucontext_t*>(context));
  }
  pager::miss_resolver& misses = static_cast<pager::far_pager&>(*pager).misses();
  if (pager::is_of_foreign(misses, info->si_addr)) {
    return pass_to_program(number, info, *static_cast<ucontext_t*>(context));
  }
  const int saved_errno = errno;
  {
    const undispatched_section section;
    std::optional<platform::runtime_mark> allocate_locally;
    std::optional<platform::uncancelled> to_its_end;
    if (!misses.has_fibers()) {  // a fiber may continue on another thread
      allocate_locally.emplace();
      to_its_end.emplace();
    }
    misses.resolve_fault(info->si_addr, context);
  }
  errno = saved_errno;
}

// The handler runs on the signal stack, because the thread's own may be far. It blocks everything except misses,
// because a handler of the program that touched far memory would wait for locks that we hold.
void install(own_action& own, int number, signal_handler handler, kernel_mask open) {
  own.number = number;
  own.action = {reinterpret_cast<void*>(handler), SA_SIGINFO | SA_ONSTACK | SA_RESTART | restorer_given,
                far_signal_return, ~open};
  own.next = installed;
  installed = &own;
  kernel_sigaction(number, &own.action, nullptr);
}

}  // namespace

bool signal_is_ours(int number) noexcept {
  return (taken & bit_of(number)) != 0;
}

kernel_mask without_ours(kernel_mask mask) noexcept {
  return mask & ~taken;
}

void let_ours_in() noexcept {
  far_raw_syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, reinterpret_cast<long>(&taken), 0, sizeof taken);
}

void take_signals(signal_handler on_sigsys, bool misses_too) noexcept {
  taken = bit_of(SIGSYS) | (misses_too ? bit_of(SIGBUS) : 0);
  {
    const lock_guard guard(wanted.lock);
    kernel_sigaction(SIGSYS, nullptr, &wanted.of_sigsys);
    // The pager has taken SIGBUS by now; constructors of the program that ran before ours had no reason to.
    wanted.of_sigbus = {};
  }
  for (int number = 1; number <= signals; ++number) {
    kernel_action action{};
    if (signal_is_ours(number) || kernel_sigaction(number, nullptr, &action) != 0) continue;
    if (without_ours(action.mask) == action.mask) continue;
    action.mask = without_ours(action.mask);
    kernel_sigaction(number, &action, nullptr);
  }
  if (misses_too) install(for_sigbus, SIGBUS, on_sigbus, 0);
  install(for_sigsys, SIGSYS, on_sigsys, misses_too ? bit_of(SIGBUS) : 0);
  let_ours_in();
}

const own_action* own_actions() noexcept {
  return installed;
}

void reset_actions_in_child() noexcept {
  for (const own_action* own = installed; own != nullptr; own = own->next) {
    kernel_sigaction(static_cast<int>(own->number), &own->action, nullptr);
  }
  open_program_actions_in_child();
  const lock_guard guard(wanted.lock);
  for (kernel_action* const action : {&wanted.of_sigbus, &wanted.of_sigsys}) {
    if (action->handler != reinterpret_cast<void*>(SIG_IGN)) *action = {};
  }
}

void exchange_program_action(int number, const kernel_action* action, kernel_action* old) noexcept {
  const kernel_action asked = action != nullptr ? *action : kernel_action{};
  kernel_action before{};
  {
    const undispatched_section section;  // a wait for the lock makes system calls, and SIGSYS is blocked here
    const lock_guard guard(wanted.lock);
    before = wanted_for(number);
    if (action != nullptr) wanted_for(number) = asked;
  }
  if (old != nullptr) *old = before;
}

void open_program_actions_in_child() noexcept {
  wanted.lock.open_in_child();
}

// Does what the kernel would have done if our handler were not there, the default action and the signal mask included.
// A fault that the program ignores would repeat forever, and ends the process as it does natively.
void pass_to_program(int number, siginfo_t* info, ucontext_t& context) noexcept {
  kernel_action action{};
  exchange_program_action(number, nullptr, &action);
  // A signal that somebody sent, or the notice of memory that the machine has lost, rather than an access that would
  // fault again at once.
  const bool sent = info->si_code <= 0 || (number == SIGBUS && info->si_code == BUS_MCEERR_AO);
  if (action.handler == reinterpret_cast<void*>(SIG_IGN) && sent) return;
  if (action.handler == reinterpret_cast<void*>(SIG_DFL) || action.handler == reinterpret_cast<void*>(SIG_IGN)) {
    // Ends the process as soon as this handler returns.
    const kernel_action fatal{};
    kernel_sigaction(number, &fatal, nullptr);
    far_raw_syscall(SYS_tgkill, far_raw_syscall(SYS_getpid), far_raw_syscall(SYS_gettid), number);
    return;
  }
  if ((action.flags & SA_RESETHAND) != 0) {
    const kernel_action fatal{};
    exchange_program_action(number, &fatal, nullptr);
  }
  set_mask(without_ours(mask_of(context) | action.mask));
  if ((action.flags & SA_SIGINFO) != 0) {
    reinterpret_cast<signal_handler>(action.handler)(number, info, &context);
  } else {
    reinterpret_cast<void (*)(int)>(action.handler)(number);
  }
}

}  // namespace far::preload
