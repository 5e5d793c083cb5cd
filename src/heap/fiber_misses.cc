#include "heap/fiber_misses.h"

#include <chrono>
#include <new>
#include <type_traits>

#include "base/check.h"
#include "fiber/identity.h"
#include "fiber/this_fiber.h"
#include "fiber/waiter.h"

namespace far::heap {
namespace {

static_assert(sizeof(fiber::waiter) <= sizeof(engine::miss_waiter::ticket));
static_assert(sizeof(engine::read_ahead_state) <= fiber::miss_room::bytes);
static_assert(std::is_trivially_destructible_v<engine::read_ahead_state>);

fiber::waiter& waiter_in(engine::miss_waiter::ticket& one) {
  return *std::launder(reinterpret_cast<fiber::waiter*>(one.room));
}

std::chrono::nanoseconds to_pause(std::uint64_t pause_ns) {
  constexpr auto longest = static_cast<std::uint64_t>(std::chrono::nanoseconds::max().count());
  return pause_ns >= longest ? std::chrono::nanoseconds::max() : std::chrono::nanoseconds(pause_ns);
}

}  // namespace

void fiber_misses::serve(pager::page_guard& served) {
  FAR_CHECK(poller_.load() == none, "fiber_misses serves one pager");
  poller_.store(workers_.add_poller([&served] { return to_pause(served.poll()); }));
}

void fiber_misses::stop() noexcept {
  FAR_CHECK(parked() == 0, "no fiber waits for a pager that is to go");
  const unsigned number = poller_.exchange(none);
  if (number != none) workers_.remove_poller(number);
}

bool fiber_misses::on_fiber() const noexcept {
  return fiber::on_fiber();
}

engine::read_ahead_state& fiber_misses::streams() noexcept {
  fiber::miss_room& mine = *fiber::current_miss_room();
  if (!mine.used) {
    new (mine.room) engine::read_ahead_state;
    mine.used = true;
  }
  return *std::launder(reinterpret_cast<engine::read_ahead_state*>(mine.room));
}

void fiber_misses::open(ticket& mine) noexcept {
  new (mine.room) fiber::waiter;
}

void fiber_misses::park(ticket& mine, place from) noexcept {
  const std::uint64_t now = parked_.fetch_add(1, std::memory_order_relaxed) + 1;
  std::uint64_t most = most_parked_.load(std::memory_order_relaxed);
  while (now > most && !most_parked_.compare_exchange_weak(most, now, std::memory_order_relaxed)) continue;
  if (from == place::fault_handler) {
    static_cast<void>(waiter_in(mine).park_in_fault_handler());
  } else {
    waiter_in(mine).park();
  }
  parked_.fetch_sub(1, std::memory_order_relaxed);
  close(mine);
}

void fiber_misses::close(ticket& mine) noexcept {
  waiter_in(mine).~waiter();
}

void fiber_misses::wake(ticket& one) noexcept {
  waiter_in(one).wake();
}

void fiber_misses::poll_soon() noexcept {
  const unsigned number = poller_.load(std::memory_order_relaxed);
  if (number != none) workers_.poll_soon(number);
}

}  // namespace far::heap
