// The pager's part in a miss: on which thread or fiber it is, and what surrounds the engine there.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "engine/thread_misses.h"
#include "pager/far_pager.h"
#include "pager/miss_kind.h"
#include "platform/fault_context.h"
#include "platform/fork_order.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"

namespace far::pager {
namespace {

// Each thread starts with a fetcher of its own, as far as there are enough.
std::atomic<unsigned> thread_tokens{0};
thread_local const unsigned thread_token = thread_tokens.fetch_add(1, std::memory_order_relaxed);
constinit thread_local engine::read_ahead_state thread_streams;

// Not inline, and opaque to the optimiser: a fiber that went on on another thread must not use what it knew of the old
// one.
[[gnu::noinline]] unsigned token_of_thread() noexcept {
  asm volatile("");
  return thread_token;
}

}  // namespace

// ---- the engine's surroundings ----

void far_pager::enter() noexcept {
  ++platform::forks_held_up;
}

void far_pager::leave() noexcept {
  --platform::forks_held_up;
}

void far_pager::rest(std::uint64_t nanoseconds) noexcept {
  const timespec length{.tv_sec = 0, .tv_nsec = static_cast<long>(nanoseconds)};
  syscall(SYS_nanosleep, &length, nullptr);  // nanosleep() would let a thread be cancelled here
}

void far_pager::wake_background() noexcept {
  reclaimer_->wake();
}

void far_pager::poll_soon() noexcept {
  chosen_.fibers->poll_soon();
}

std::size_t far_pager::preferred_fetcher() const noexcept {
  return token_of_thread();
}

// ---- misses ----

void far_pager::resolve(page_id page, bool write, miss_waiter::place from) noexcept {
  if (from == miss_waiter::place::fault_handler) engine_->misses().note_unguarded(page);
  resolve({.page = page, .write = write}, from);
}

void far_pager::resolve(engine::wanted_page wanted, miss_waiter::place from) noexcept {
  const engine::miss::state reached =
      on_fiber() ? parked_->resolve(wanted, from)
                 : engine::resolve_on_thread(*engine_, *this, fetchers_, thread_streams, wanted);
  if (reached == engine::miss::state::lost && wanted.whose == engine::demand::access) die_of_lost_page(wanted.page);
}

void far_pager::resolve_fault(const void* address, const void* context) noexcept {
  resolve_observed(static_cast<const std::byte*>(address), platform::access_was_write(context), context);
}

void far_pager::resolve_observed(const std::byte* address, bool write, const void* context) noexcept {
  const page_id page = page_at(address);
  if (chosen_.observer == nullptr) return resolve(page, write, miss_waiter::place::fault_handler);
  const miss one{.time_ns = clock_.now_ns(),
                 .address = address,
                 .what = kind_of_miss(*engine_, page, write),
                 .thread = static_cast<std::uint32_t>(syscall(SYS_gettid)),
                 .context = context,
                 .pinned = context == nullptr};
  resolve(page, write, miss_waiter::place::fault_handler);
  chosen_.observer->missed(one);
}

std::uint64_t far_pager::poll() noexcept {
  return parked_->poll();
}

// ---- without a hardware fault ----

void far_pager::fetch(const std::byte* address, std::size_t bytes, bool write) {
  if (bytes == 0) return;
  const page_id first = page_at(address);
  const page_id last = page_at(address + (bytes - 1));
  if (last > first) {
    // Each of the pages is waited for below.
    static_cast<void>(prefetch_pages({first, static_cast<std::size_t>(last - first + 1)}));
  }
  for (page_id page = first; page <= last; ++page) {
    if (engine_->view().accessible(page, write)) continue;
    std::optional<platform::signal_shield> shield;
    if (!on_fiber()) shield.emplace();  // a worker's signals are blocked already
    resolve({.page = page, .write = write}, miss_waiter::place::call);
  }
}

}  // namespace far::pager
