// Threads of the runtime: they never touch far memory, run none of the program's signal handlers, and their allocations
// are local, also inside libraries that they call.
#pragma once

#include <functional>
#include <thread>

#include "platform/signal_shield.h"

namespace far::platform {

// Whether the calling thread is one of the runtime's. The preload library asks this in malloc and mmap.
[[nodiscard]] bool on_runtime_thread() noexcept;

// While one of these lives, the calling thread counts as one of the runtime's. Requires: no signal handler of the
// program can run on it meanwhile. The handler would be taken for the runtime, too: its munmap calls would bypass the
// pager, and if it left by a jump, its thread would stay marked for good.
class runtime_mark {
 public:
  runtime_mark() noexcept;
  ~runtime_mark();
  runtime_mark(const runtime_mark&) = delete;
  runtime_mark& operator=(const runtime_mark&) = delete;
};

// The same for threads of the program: their signals are blocked from before the mark until after it.
class runtime_section {
 public:
  runtime_section() noexcept = default;

 private:
  const signal_shield shield_;
  const runtime_mark mark_;
};

// How many threads start_runtime_thread() has started that have not ended.
[[nodiscard]] unsigned runtime_threads() noexcept;
// In the child of a fork, which has none of them.
void forget_runtime_threads() noexcept;

// Throws std::system_error when the kernel starts no more threads.
[[nodiscard]] std::thread start_runtime_thread(const char* name, std::function<void()> body);

}  // namespace far::platform
