// Waiting, for fibers and OS threads alike. Mutexes, channels, joins, sleeps and misses (docs/fiber-waits.md) are built
// on this.
//
// A waiter is one wait of one fiber or OS thread. The waiting side creates it (usually on its stack), publishes it and
// parks; another thread or fiber wakes it. A wake that comes before the park is kept, so none is lost. States:
//
//     idle ──park──> parked ──wake──> woken        the fiber is made ready (the OS thread's futex is woken)
//      │               └──deadline──> timed_out    likewise
//      ├──wake──> woken                            park returns at once
//      └──deadline──> timed_out                    likewise
//
// Exactly one of wake and deadline wins. `idle -> parked` happens after the worker has left the fiber's stack, so any
// thread that sees `parked` may run the fiber at once.
//
// A waiter must outlive its wake. A waker that finds it in a list therefore holds the list's lock during claim(), and a
// waiter whose deadline has passed takes itself off the list under that lock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "fiber/timer_heap.h"

namespace far::fiber {

struct control_block;

using time_point = std::chrono::steady_clock::time_point;

// A deadline that never comes.
inline constexpr time_point never = time_point::max();

// The deadline `from_now` after now, and never when that lies beyond the clock.
[[nodiscard]] time_point after(std::chrono::nanoseconds from_now) noexcept;

// A notification for a claimed waiter. It must be delivered, after locks are released.
class [[nodiscard]] wake_up {
 public:
  wake_up() = default;
  // Makes the fiber ready, or wakes the OS thread. Does nothing when there is no waiter. Any thread; also inside a
  // fault handler.
  void deliver() const noexcept;

 private:
  friend class waiter;
  control_block* fiber_ = nullptr;
  std::atomic<std::uint32_t>* sleeper_ = nullptr;
};

class waiter {
 public:
  // For the calling fiber, or the calling OS thread when it runs none.
  waiter() noexcept;
  ~waiter();
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;

  // Waits for wake(). Only for the thread or fiber that created the waiter, once. On a worker, outside fibers (in a
  // poller), it is an error.
  void park() noexcept { static_cast<void>(park_until(never)); }
  // Returns false when the deadline came first.
  [[nodiscard]] bool park_until(time_point deadline) noexcept;

  // The same inside the handler of a synchronous signal (SIGBUS, SIGSEGV) that interrupted the calling fiber at a
  // memory access. Other fibers run meanwhile, with the signals that the worker usually has; the fiber continues on the
  // same worker, and is not stolen, because the rest of the handler and the interrupted code may have the addresses of
  // thread-local variables in registers. errno and the signal mask are afterwards as they were. Requires: on a fiber,
  // the handler runs on the fiber's own stack: the signal's action is without SA_ONSTACK.
  [[nodiscard]] bool park_in_fault_handler(time_point deadline = never) noexcept;

  // Ends the wait. Returns whether it was this call that did (not the deadline, not another wake). Any thread; also
  // inside a fault handler. The waiter may be gone when it returns.
  bool wake() noexcept;

  // The two halves of wake(), for wakers that hold a lock: claim() decides, and the wake_up notifies, delivered after
  // the lock is released. Returns false when the wait has ended already.
  [[nodiscard]] bool claim(wake_up& notice) noexcept { return finish(woken, notice); }

 private:
  friend class wait_list;
  friend class worker;

  static constexpr std::uint32_t idle = 0;
  static constexpr std::uint32_t parked = 1;
  static constexpr std::uint32_t woken = 2;
  static constexpr std::uint32_t timed_out = 3;

  [[nodiscard]] bool finish(std::uint32_t as, wake_up& notice) noexcept;
  [[nodiscard]] bool park_thread_until(time_point deadline) noexcept;
  [[nodiscard]] bool park_fiber_until(time_point deadline) noexcept;
  static void on_deadline(timer& expired) noexcept;

  std::atomic<std::uint32_t> state_{idle};
  control_block* const fiber_;  // nullptr: an OS thread
  timer deadline_;
  // In a wait_list, under its lock.
  waiter* next_ = nullptr;
  waiter* previous_ = nullptr;
  bool listed_ = false;
};

// Waiters in the order in which they came. The owner's lock guards all of it.
class wait_list {
 public:
  wait_list() = default;
  ~wait_list();  // requires: nobody waits
  wait_list(const wait_list&) = delete;
  wait_list& operator=(const wait_list&) = delete;

  void append(waiter& last) noexcept;
  // After a deadline. Nothing when it is not listed any more.
  void remove(waiter& listed) noexcept;
  // Takes off the first whose wait has not ended by its deadline, and claims it. Returns false when there is none.
  [[nodiscard]] bool claim_first(wake_up& notice) noexcept;
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  // Whether somebody is listed whose wait has not ended by its deadline.
  [[nodiscard]] bool has_any_to_wake() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  waiter* first_ = nullptr;
  waiter* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace far::fiber
