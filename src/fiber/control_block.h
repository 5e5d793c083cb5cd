// The scheduler's state of one fiber. It lies at the top of the fiber's own stack, so that a fiber costs one piece of
// memory.
//
//     created ── submit ──> ready ──> running ──> parking ──> parked ──┐      (waiter.h has the last three)
//                             ^         │  │         │                 │
//                             │<─yield──┘  │         │ woken already   │ wake, deadline
//                             │<─────────────────────┘                 │
//                             └<───────────────────────────────────────┘
//                                          └──> finished, once its body has returned
//
// A ready fiber is in exactly one run queue. A running or parking one belongs to the worker whose `current` it is; a
// fiber becomes visible to others (in a run queue, or parked) only after its worker has left its stack. A parked one
// belongs to the thread that moves its waiter out of the state `parked`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "fiber/context.h"
#include "fiber/identity.h"
#include "fiber/priority.h"
#include "fiber/stack_pool.h"

namespace far::fiber {

class scheduler_state;
class waiter;
class worker;

struct control_block {
  static constexpr std::size_t name_bytes = 32;

  context where;
  stack memory;
  std::shared_ptr<stack_pool> stacks;  // where it goes back; a handle may outlive the scheduler
  scheduler_state* owner = nullptr;
  worker* home = nullptr;         // where it ran last: foreign threads make it ready there
  worker* pinned = nullptr;       // when set, only this worker may run it
  control_block* next = nullptr;  // in a run queue
  identity who;
  miss_room misses;
  std::uint64_t number = 0;
  bool has_waited = false;  // or yielded, since the last yield_unless_waited()
  fiber::priority usual = priority::normal;
  char name[name_bytes] = {};

  // Its code: `closure` lies on its stack, above its first frame.
  void (*body)(void* closure) = nullptr;
  void* closure = nullptr;

  // The C++ runtime has one record of the exceptions being handled for each OS thread (abi::__cxa_get_globals). A fiber
  // that is switched away inside a catch block keeps its own here. Itanium C++ ABI, section 2.2.2.
  struct exceptions_under_way {
    void* caught = nullptr;
    unsigned int uncaught = 0;
  } exceptions;

  // The waiter of the joiner; `ended` once the fiber has ended; `notified` once the joiner, if any, has been woken.
  std::atomic<waiter*> joiner{nullptr};
  // One for the run, one for the handle. At zero the stack goes back to the pool, this block with it.
  std::atomic<unsigned> references{2};

  // In the run queue's terms.
  [[nodiscard]] fiber::priority level() const noexcept { return who.is_in_scope() ? priority::in_scope : usual; }
  // "'name' (number 7)" in messages.
  void set_name(const char* given);

  // Creates a block at the top of `on`, with room for a closure below it. Requires closure_bytes <=
  // largest_closure_bytes.
  static constexpr std::size_t largest_closure_bytes = 1024;
  [[nodiscard]] static control_block& create_on(stack on, std::size_t closure_bytes);
  // The last one gives its stack back. Requires: nothing runs on it then.
  static void drop_reference(control_block& one) noexcept;

  [[nodiscard]] static waiter* ended() noexcept { return reinterpret_cast<waiter*>(std::uintptr_t{1}); }
  [[nodiscard]] static waiter* notified() noexcept { return reinterpret_cast<waiter*>(std::uintptr_t{2}); }
};

}  // namespace far::fiber
