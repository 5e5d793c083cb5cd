// Running out of a fiber's stack ends in a message that names the fiber. The guard area below the stack raises SIGSEGV,
// whose handler needs a stack of its own: each worker has a signal stack, for this alone.
#pragma once

#include <cstddef>

namespace far::fiber {

// Installs the handler of SIGSEGV, once for all schedulers; signals that are no overflow go to the handler that the
// program had before. The last stop puts that one back, unless the program has installed yet another.
void watch_for_overflows();
void stop_watching_for_overflows() noexcept;

// The signal stack of the calling thread, while it lives.
class overflow_stack {
 public:
  overflow_stack();
  ~overflow_stack();
  overflow_stack(const overflow_stack&) = delete;
  overflow_stack& operator=(const overflow_stack&) = delete;

 private:
  std::byte* low_;
};

}  // namespace far::fiber
