#include "pager/inline_guard.h"

#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

#include "base/spin_lock.h"
#include "pager/miss_resolver.h"
#include "platform/cancellation.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"

namespace far::pager {
namespace {

constexpr std::size_t most_pagers = 8;

std::array<std::atomic<miss_resolver*>, most_pagers> guarded{};
std::atomic<unsigned> guarded_count{0};
spin_lock installing;  // held to change the above, and the kernel's idea of the handler
bool avoids_signal_stacks = false;
struct sigaction program_action{};  // for a SIGBUS that is not ours: as it was before the first pager

// A signal that somebody sent has no address.
// By somebody, or as an early notice of memory that the machine has lost: no access would fault again at once.
bool was_sent(const siginfo_t& info) {
  return info.si_code <= 0 || info.si_code == BUS_MCEERR_AO;
}

// Passes a SIGBUS that is not ours to the program, as if our handler did not exist. A fault that the program ignores
// would repeat for ever, and ends the process as it does natively.
void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction action = program_action;
  if ((action.sa_flags & SA_SIGINFO) != 0) return action.sa_sigaction(signal, info, context);
  if (action.sa_handler == SIG_IGN && was_sent(*info)) return;
  if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) return action.sa_handler(signal);
  // Ends the process as soon as this handler returns.
  struct sigaction fatal{};
  fatal.sa_handler = SIG_DFL;
  sigaction(SIGBUS, &fatal, nullptr);
  raise(signal);
}

miss_resolver* resolver_of(const void* address) {
  for (const std::atomic<miss_resolver*>& slot : guarded) {
    miss_resolver* const misses = slot.load(std::memory_order_acquire);
    if (misses != nullptr && misses->contains(address)) return misses;
  }
  return nullptr;
}

void on_sigbus(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  miss_resolver* const misses = may_be_miss(*info) ? resolver_of(info->si_addr) : nullptr;
  if (misses != nullptr && !is_of_foreign(*misses, info->si_addr)) {
    std::optional<platform::runtime_mark> allocate_locally;
    std::optional<platform::uncancelled> to_its_end;
    if (!misses->has_fibers()) {  // a fiber may continue on another thread
      allocate_locally.emplace();
      to_its_end.emplace();
    }
    misses->resolve_fault(info->si_addr, context);
  } else {
    pass_on(signal, info, context);
  }
  errno = saved_errno;
}

// Everything is blocked in the handler, because another handler that touched far memory would wait for locks that we
// hold. It runs on the thread's signal stack where it has one, because the thread's own stack may be far memory; not
// with fibers: one that waits in the handler leaves its frames there, and the next would overwrite them.
struct sigaction our_action() {
  struct sigaction ours{};
  ours.sa_sigaction = on_sigbus;
  ours.sa_flags = SA_SIGINFO | SA_RESTART | (avoids_signal_stacks ? 0 : SA_ONSTACK);
  sigfillset(&ours.sa_mask);
  return ours;
}

}  // namespace

result<void> install_inline_guard(miss_resolver& misses) {
  const platform::signal_shield shield;
  const lock_guard guard(installing);
  std::atomic<miss_resolver*>* place = nullptr;
  for (std::atomic<miss_resolver*>& slot : guarded) {
    if (slot.load() == nullptr) place = &slot;
  }
  if (place == nullptr) {
    return error{"eight far heaps of this process resolve faults inline already; use --fault-mode thread", EBUSY};
  }
  const bool first = guarded_count.load() == 0;
  if (first || (misses.has_fibers() && !avoids_signal_stacks)) {
    avoids_signal_stacks = misses.has_fibers();
    const struct sigaction ours = our_action();
    if (sigaction(SIGBUS, &ours, first ? &program_action : nullptr) != 0) {
      return error{std::string("cannot install a SIGBUS handler (") + std::strerror(errno) + ")", errno};
    }
  }
  place->store(&misses, std::memory_order_release);
  guarded_count.fetch_add(1);
  return {};
}

void remove_inline_guard(miss_resolver& misses) {
  const platform::signal_shield shield;
  const lock_guard guard(installing);
  for (std::atomic<miss_resolver*>& slot : guarded) {
    if (slot.load() != &misses) continue;
    if (guarded_count.fetch_sub(1) == 1) sigaction(SIGBUS, &program_action, nullptr);
    slot.store(nullptr);
    return;
  }
}

bool may_be_miss(const siginfo_t& info) noexcept {
  return !was_sent(info) && info.si_code != BUS_MCEERR_AR;
}

bool is_of_foreign(const miss_resolver& misses, const void* address) noexcept {
  constinit static thread_local const void* last = nullptr;
  if (!misses.is_foreign(address)) return false;
  const bool again = last == address;
  last = again ? nullptr : address;
  return again;
}

}  // namespace far::pager
