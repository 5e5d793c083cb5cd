#include "pager/inline_guard.h"

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>

#include "base/spin_lock.h"
#include "pager/far_pager.h"
#include "platform/fault_context.h"

namespace far::pager {
namespace {

std::atomic<far_pager*> guarded_pager{nullptr};
spin_lock program_action_lock;
struct sigaction program_action{};  // what the program wants done with a SIGBUS that is not ours

// Gives a SIGBUS that is none of ours to the program, as if we were not here.
void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction action = program_action;
  if ((action.sa_flags & SA_SIGINFO) != 0) return action.sa_sigaction(signal, info, context);
  if (action.sa_handler == SIG_IGN) return;
  if (action.sa_handler != SIG_DFL) return action.sa_handler(signal);
  // The default is to die of it: put the default back and let the access fault again.
  struct sigaction fatal{};
  fatal.sa_handler = SIG_DFL;
  sigaction(SIGBUS, &fatal, nullptr);
}

void on_sigbus(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  far_pager* const pager = guarded_pager.load(std::memory_order_acquire);
  if (pager != nullptr && pager->contains(info->si_addr)) {
    pager->resolve(pager->page_at(info->si_addr), platform::access_was_write(context));
  } else {
    pass_on(signal, info, context);
  }
  errno = saved_errno;
}

}  // namespace

result<void> install_inline_guard(far_pager& pager) {
  far_pager* none = nullptr;
  if (!guarded_pager.compare_exchange_strong(none, &pager)) {
    return error{"another far heap of this process resolves faults inline already; use --fault-mode thread", EBUSY};
  }
  struct sigaction ours{};
  ours.sa_sigaction = on_sigbus;
  // On the thread's signal stack where it has one: its own stack may be far memory. Everything is blocked, because
  // another handler that touched far memory would wait for locks that we hold.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigfillset(&ours.sa_mask);
  if (sigaction(SIGBUS, &ours, &program_action) != 0) {
    return error{std::string("cannot install a SIGBUS handler (") + std::strerror(errno) + ")", errno};
  }
  return {};
}

void remove_inline_guard(far_pager& pager) {
  if (guarded_pager.load() != &pager) return;
  sigaction(SIGBUS, &program_action, nullptr);
  guarded_pager.store(nullptr);
}

bool inline_guard_installed() noexcept {
  return guarded_pager.load() != nullptr;
}

void chained_sigbus_action(const struct sigaction* act, struct sigaction* old) noexcept {
  const std::lock_guard guard(program_action_lock);
  if (old != nullptr) *old = program_action;
  if (act != nullptr) program_action = *act;
}

}  // namespace far::pager
