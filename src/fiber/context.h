// A place where execution can stop and continue: the registers and the stack of a fiber, or of a worker's own loop. A
// thin layer over Boost.Context's fcontext that also tells the sanitizers about every switch. The choice is explained
// in docs/decisions/0011-fibers.md.
#pragma once

#include <cstddef>

namespace far::fiber {

class context {
 public:
  // The context of the calling OS thread's own stack. Filled in by the first switch away from it.
  context() = default;
  ~context();
  context(const context&) = delete;
  context& operator=(const context&) = delete;

  // Makes the next switch to this context call `entry` on the stack [low, low + bytes), with the data of the switch.
  // `entry` must never return. May be called again once nothing runs on the stack.
  void prepare(std::byte* low, std::size_t bytes, void (*entry)(void* data));

  // The name of this context in reports of the sanitizers; it is copied.
  void set_name(const char* name);

  // Leaves `from`, which must be the caller's context, and continues in `to`. Returns when somebody switches back to
  // `from`, with the data of that switch. `for_good`: nobody will; `from` may be prepared again afterwards. No
  // allocation, no system call; the signal mask and thread-local variables are those of the OS thread throughout.
  static void* switch_to(context& from, context& to, void* data, bool for_good);

 private:
  friend struct context_entry;

  // The data of a switch, on the stack of the side that leaves, until the other side has arrived.
  struct passage {
    context* from = nullptr;
    context* to = nullptr;
    void* data = nullptr;
  };

  void arrived(const passage& passing, void* left_at);

  void* resume_at_ = nullptr;  // an fcontext_t
  void (*entry_)(void*) = nullptr;
  // For the sanitizers.
  const void* stack_low_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* saved_by_address_sanitizer_ = nullptr;
  void* known_to_thread_sanitizer_ = nullptr;
  bool owns_thread_sanitizer_fiber_ = false;
};

}  // namespace far::fiber
