// Facts about a faulting access, for a signal handler. The one place that knows the machine's registers.
#pragma once

#include <signal.h>
#include <ucontext.h>

namespace far::platform {

// Whether the access that raised SIGBUS or SIGSEGV was a write. Unknown counts as a write: it costs a page written once
// more, never a wrong byte.
inline bool access_was_write(const void* context) noexcept {
#if defined(__x86_64__)
  constexpr unsigned long long page_fault_write = 2;
  const auto* const user = static_cast<const ucontext_t*>(context);
  return (static_cast<unsigned long long>(user->uc_mcontext.gregs[REG_ERR]) & page_fault_write) != 0;
#else
  static_cast<void>(context);
  return true;
#endif
}

// Where the stack of the interrupted code ended, or nullptr when unknown.
inline const void* interrupted_stack_pointer(const void* context) noexcept {
  const auto* const user = static_cast<const ucontext_t*>(context);
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(user->uc_mcontext.gregs[REG_RSP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(user->uc_mcontext.sp);
#else
  static_cast<void>(user);
  return nullptr;
#endif
}

}  // namespace far::platform
