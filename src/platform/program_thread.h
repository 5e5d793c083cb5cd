// Threads of the runtime that work as the program does: they touch far memory, and allocate as the program allocates,
// but run none of its signal handlers. A program that waits for a signal blocks it in its own threads, and knows no
// others.
#pragma once

#include <signal.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "platform/signal_shield.h"

namespace far::platform {

// Every signal but those that an access or an instruction raises, those of profilers, and the C library's own.
inline constexpr std::uint64_t blocked_on_program_threads = [] {
  std::uint64_t blocked = ~std::uint64_t{0};
  for (const int raised :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF, SIGVTALRM, identity_signal}) {
    blocked &= ~(std::uint64_t{1} << (raised - 1));
  }
  return blocked;
}();

// `name`: at most 15 characters. Throws std::system_error when the kernel starts no more threads.
[[nodiscard]] std::thread start_program_thread(std::string name, std::function<void()> body);

}  // namespace far::platform
