// How the pager makes a fiber wait. Fibers come after the pager in the order of folders, so it knows them by this
// interface only; the object heap implements it (heap/fiber_misses.h) and gives it to pager::create.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/read_ahead.h"

namespace far::engine {

// A poller returns this when it need not be called before miss_waiter::poll_soon().
inline constexpr std::uint64_t no_poll = ~std::uint64_t{0};

class miss_waiter {
 public:
  // Room for one wait, in the stack frame of the waiting function.
  struct ticket {
    alignas(std::max_align_t) std::byte room[192];
  };

  // From where the calling fiber waits. `fault_handler`: inside a signal handler, or with the thread's signals blocked;
  // the fiber goes on on the same OS thread. `call`: anywhere else; it may go on on another one.
  enum class place { fault_handler, call };

  // Whether the calling thread runs a fiber, which may wait here.
  [[nodiscard]] virtual bool on_fiber() const noexcept = 0;

  // The history of the calling fiber's misses. Requires: on_fiber().
  [[nodiscard]] virtual read_ahead_state& streams() noexcept = 0;

  // One wait of the calling fiber: open() the ticket, let wakers know of it, then park(), or close() when there is
  // nothing to wait for after all. A wake() that comes between open() and park() is not lost. Requires: on_fiber().
  virtual void open(ticket& mine) noexcept = 0;
  virtual void park(ticket& mine, place from) noexcept = 0;
  virtual void close(ticket& mine) noexcept = 0;

  // Once for each ticket at most, and not after close(). Any thread, also with locks held and inside a fault handler;
  // never waits. The ticket may be gone when it returns.
  virtual void wake(ticket& one) noexcept = 0;

  // pager::poll() is to be called soon: transfers are on their way, or fibers wait for it. Any thread.
  virtual void poll_soon() noexcept = 0;

 protected:
  ~miss_waiter() = default;
};

}  // namespace far::engine
