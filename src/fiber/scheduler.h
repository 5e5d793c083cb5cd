// Fibers and the workers that run them: start reading here. A scheduler is an ordinary object; there may be several.
//
//     far::fiber::scheduler scheduler;
//     auto sum = scheduler.spawn([&] { total = add_up(table); }, {.name = "sum"});
//     sum.join();
//
// Workers are ordinary threads of the program, and may touch far memory; but signals of the program are blocked on
// them. Fibers wait by this_fiber.h, mutex.h, condition_variable.h, semaphore.h, channel.h and blocking.h; beneath them
// lies waiter.h. All of it works between fibers, between OS threads, and between both.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "fiber/control_block.h"
#include "fiber/options.h"
#include "fiber/poller_list.h"
#include "fiber/statistics.h"
#include "fiber/waiter.h"

namespace far::fiber {

class scheduler_state;

// A spawned fiber, to join or to detach. Move-only. Its destructor joins if it still has a fiber.
class handle {
 public:
  handle() = default;
  explicit handle(control_block& fiber) noexcept : fiber_(&fiber) {}
  handle(handle&& other) noexcept : fiber_(std::exchange(other.fiber_, nullptr)) {}
  handle& operator=(handle&& other) noexcept;
  ~handle();

  [[nodiscard]] bool joinable() const noexcept { return fiber_ != nullptr; }

  // Waits until the fiber has ended; then the handle has no fiber any more. From a fiber or an OS thread; not from the
  // fiber itself. Requires joinable().
  void join() noexcept { static_cast<void>(join_until(never)); }
  // Return false when the deadline came first; then the handle is as before.
  [[nodiscard]] bool join_until(time_point deadline) noexcept;
  [[nodiscard]] bool join_for(std::chrono::nanoseconds at_most) noexcept { return join_until(after(at_most)); }

  // The fiber, for another handle; nullptr when it has none.
  [[nodiscard]] control_block* release() noexcept { return std::exchange(fiber_, nullptr); }

  // Detaches it: the fiber ends by itself, and its scheduler waits for it.
  void detach() noexcept;

 private:
  control_block* fiber_ = nullptr;
};

class scheduler {
 public:
  // Starts the workers. Throws std::system_error when the system refuses a thread.
  explicit scheduler(const scheduler_options& chosen = {});
  // Waits until every fiber has ended. Requires: not called on one of them. Handles may be joined at the same time, and
  // afterwards.
  ~scheduler();
  scheduler(const scheduler&) = delete;
  scheduler& operator=(const scheduler&) = delete;

  // Runs `body` on a new fiber. Any thread. An exception that leaves `body` stops the program, as for a std::thread.
  // Throws std::system_error when there is no memory for a stack, and what copying or moving `body` throws.
  template <typename F>
    requires std::invocable<std::decay_t<F>&>
  [[nodiscard]] handle spawn(F&& body, const spawn_options& how = {});

  // Workers call `one` between fibers and when idle (poller_list.h); it may be called before this returns. Returns its
  // number. Requires: fewer than poller_list::most_pollers at a time.
  [[nodiscard]] unsigned add_poller(poller one);
  // When this returns, it does not run and will not be called again.
  void remove_poller(unsigned number) noexcept;
  // Calls the poller soon, regardless of the pause that it asked for, because a transfer was submitted. Any thread.
  void poll_soon(unsigned number) noexcept;

  // Under memory pressure: every running fiber yields at its next guard, so that the evictor has its turn, until the
  // request is withdrawn (AIFM, section 5.4). Guards ask should_yield() and call yield().
  void request_yield() noexcept { yield_requested_.store(true, std::memory_order_relaxed); }
  void withdraw_yield_request() noexcept { yield_requested_.store(false, std::memory_order_relaxed); }
  [[nodiscard]] bool should_yield() const noexcept { return yield_requested_.load(std::memory_order_relaxed); }

  // Waits until every fiber has ended, as the destructor does. Requires: as the destructor.
  void wait_for_all() const noexcept;

  // Whether the caller is one of its fibers, or a thread that makes a blocking call for one.
  [[nodiscard]] bool is_running_caller() const noexcept;

  [[nodiscard]] unsigned workers() const noexcept;
  [[nodiscard]] statistics snapshot() const noexcept;

 private:
  [[nodiscard]] control_block& create(const spawn_options& how, std::size_t closure_bytes);
  void discard(control_block& fresh) noexcept;
  [[nodiscard]] handle submit(control_block& fresh) noexcept;

  std::atomic<bool> yield_requested_{false};
  std::unique_ptr<scheduler_state> state_;
};

template <typename F>
  requires std::invocable<std::decay_t<F>&>
handle scheduler::spawn(F&& body, const spawn_options& how) {
  using closure = std::decay_t<F>;
  static_assert(sizeof(closure) <= control_block::largest_closure_bytes, "capture less, or a pointer to it");
  static_assert(alignof(closure) <= 64, "a closure is aligned to 64 bytes at most");
  control_block& fresh = create(how, sizeof(closure));
  try {
    new (fresh.closure) closure(std::forward<F>(body));
  } catch (...) {
    discard(fresh);
    throw;
  }
  fresh.body = [](void* at) {
    const std::unique_ptr<closure, void (*)(closure*)> mine(static_cast<closure*>(at),
                                                            [](closure* c) { c->~closure(); });
    std::invoke(*mine);
  };
  return submit(fresh);
}

}  // namespace far::fiber
