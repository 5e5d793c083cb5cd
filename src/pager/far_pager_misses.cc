// The pager's part in a miss: who waits for what, and who helps meanwhile. On an OS thread and on a fiber.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "pager/far_pager.h"
#include "pager/miss_kind.h"
#include "platform/fault_context.h"
#include "platform/fork_order.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"

namespace far::pager {
namespace {

// How long poll() is called as often as possible after it last found something; then ever more rarely.
constexpr std::uint64_t eager_ns = 50'000;
constexpr std::uint64_t longest_pause_ns = 200'000;

// Each thread starts with a fetcher of its own, as far as there are enough.
std::atomic<unsigned> thread_tokens{0};
thread_local const unsigned thread_token = thread_tokens.fetch_add(1, std::memory_order_relaxed);
constinit thread_local engine::stream_table thread_streams;

// Between two looks at a read that has failed and is tried again later.
void nap() noexcept {
  const timespec length{.tv_sec = 0, .tv_nsec = 500'000};
  nanosleep(&length, nullptr);
}

// Not inline, and opaque to the optimiser: a fiber that went on on another thread must not use what it knew of the old
// one.
[[gnu::noinline]] unsigned token_of_thread() noexcept {
  asm volatile("");
  return thread_token;
}

}  // namespace

void far_pager::resolve(page_id page, bool write, miss_waiter::place from) noexcept {
  if (from == miss_waiter::place::fault_handler) engine_->note_unguarded_miss(page);
  if (on_fiber()) return resolve_on_fiber(page, write, from);
  resolve_on_thread(page, write);
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

// Prefers one that can start something: those that are full still do for everything that needs no flight.
engine::fetcher* far_pager::try_lock_fetcher() noexcept {
  const unsigned token = token_of_thread();
  for (const bool needs_room : {true, false}) {
    for (std::size_t i = 0; i < shared_fetchers; ++i) {
      engine::fetcher& candidate = *fetchers_[(token + i) % shared_fetchers];
      if ((candidate.has_room() || !needs_room) && candidate.lock.try_lock()) return &candidate;
    }
  }
  return nullptr;
}

engine::fetcher& far_pager::lock_some_fetcher() noexcept {
  backoff waiting;
  while (true) {
    engine::fetcher* const locked = try_lock_fetcher();
    if (locked != nullptr) return *locked;
    waiting.pause();
  }
}

std::size_t far_pager::free_flights() const noexcept {
  std::size_t sum = 0;
  for (const engine::fetcher* each : fetchers_) sum += each->free_flights();
  return sum;
}

// Something may be under way that nobody waits for. The reclaimer is left alone otherwise: to wake it takes a processor
// from the program.
void far_pager::look_after_transfers() noexcept {
  if (waiting_ != nullptr && engine_->transfers_under_way()) chosen_.fibers->poll_soon();
  if (engine_->wants_background() || (waiting_ == nullptr && engine_->transfers_unattended())) reclaimer_->wake();
}

// What this thread evicts it may leave to the evictor's thread to write.
bool far_pager::reclaim() noexcept {
  const bool progress = engine_->reclaim();
  if (engine_->has_left_writes()) reclaimer_->wake();
  return progress;
}

bool far_pager::reclaim_at_miss() noexcept {
  const bool progress = engine_->reclaim_at_miss();
  if (engine_->has_left_writes()) reclaimer_->wake();
  return progress;
}

// What this thread finds to be submitted again it leaves to the evictor's thread.
bool far_pager::help() noexcept {
  const bool progress = engine_->help();
  if (engine_->has_left_transfers()) reclaimer_->wake();
  return progress;
}

// ---- on an OS thread ----

void far_pager::wait_for_frame() noexcept {
  reclaimer_->wake();
  engine_->note_direct_reclaim();
  backoff waiting;
  while (!engine_->has_frame_for_miss()) {
    if (!reclaim()) waiting.pause();
  }
}

void far_pager::resolve_on_thread(page_id page, bool write, demand whose) noexcept {
  const std::uint64_t since_ns = clock_.now_ns();
  engine::outcome reached = engine::outcome::busy;
  backoff waiting;
  bool counted = false;
  static_cast<void>(reclaim_at_miss());
  while (reached != engine::outcome::resolved) {
    {
      engine::fetcher& by = lock_some_fetcher();
      const std::lock_guard guard(by.lock, std::adopt_lock);
      const platform::holds_up_forks waited_for;
      reached = engine_->miss(by, thread_streams, page, write, whose == demand::access);
      while (reached == engine::outcome::in_flight && engine_->on_its_way(page) && !by.only_rests()) {
        if (!by.poll(engine::caller::of_program)) by.wait(1'000'000);
      }
    }
    if (reached == engine::outcome::in_flight && engine_->accessible(page, write)) break;
    if (reached == engine::outcome::in_flight && engine_->on_its_way(page)) nap();
    if (reached == engine::outcome::lost) {
      if (whose == demand::hint) break;
      die_of_lost_page(page);
    }
    if (reached == engine::outcome::no_budget) wait_for_frame();
    if (reached == engine::outcome::busy) {
      if (!counted) engine_->note_busy();
      counted = true;
      if (!help()) waiting.pause();
    }
  }
  look_after_transfers();
  engine_->note_wait(clock_.now_ns() - since_ns);
}

// ---- on a fiber ----
//
// No lock is held and nothing of the thread is remembered where a fiber waits: other fibers run on this thread
// meanwhile, and outside the fault handler this one may go on on another.

void far_pager::resolve_on_fiber(page_id page, bool write, miss_waiter::place from, demand whose) noexcept {
  const std::uint64_t since_ns = clock_.now_ns();
  bool counted = false;
  static_cast<void>(reclaim_at_miss());
  while (true) {
    const engine::outcome reached = try_miss(page, write, whose);
    if (reached == engine::outcome::resolved) break;
    if (reached == engine::outcome::lost) {
      if (whose == demand::hint) break;
      die_of_lost_page(page);
    }
    if (reached == engine::outcome::no_budget) wait_for_frame_on_fiber(from);
    if (reached == engine::outcome::in_flight) waiting_->wait_for_page(engine_->words(), page, from);
    if (reached == engine::outcome::busy) {
      if (!counted) engine_->note_busy();
      counted = true;
      let_others_finish(page, from);
    }
    if (engine_->accessible(page, write)) break;
  }
  look_after_transfers();
  engine_->note_wait(clock_.now_ns() - since_ns);
}

engine::outcome far_pager::try_miss(page_id page, bool write, demand whose) noexcept {
  engine::fetcher* const by = try_lock_fetcher();
  if (by == nullptr) return engine::outcome::busy;
  const std::lock_guard guard(by->lock, std::adopt_lock);
  return engine_->miss(*by, chosen_.fibers->streams(), page, write, whose == demand::access);
}

void far_pager::let_others_finish(page_id page, miss_waiter::place from) noexcept {
  if (engine_->on_its_way(page)) return waiting_->wait_for_page(engine_->words(), page, from);
  if (help()) return;
  waiting_->wait_for(free_flights() == 0 ? waiting_fibers::reason::flight : waiting_fibers::reason::turn, from);
}

void far_pager::wait_for_frame_on_fiber(miss_waiter::place from) noexcept {
  reclaimer_->wake();
  engine_->note_direct_reclaim();
  if (engine_->has_frame_for_miss() || reclaim()) return;
  waiting_->wait_for(waiting_fibers::reason::frame, from);
}

std::uint64_t far_pager::poll() noexcept {
  using reason = waiting_fibers::reason;
  bool progress = help();
  if (waiting_->any(reason::frame)) {
    if (!engine_->has_frame_for_miss()) progress |= reclaim();
    const std::int64_t frames = engine_->has_frame_for_miss() ? std::max<std::int64_t>(1, engine_->free_frames()) : 0;
    waiting_->wake(reason::frame, static_cast<std::size_t>(frames));
  }
  if (waiting_->any(reason::flight)) waiting_->wake(reason::flight, free_flights());
  waiting_->wake(reason::turn, ~std::size_t{0});
  const bool awaited = waiting_->any(reason::frame) || waiting_->any(reason::flight) || waiting_->any(reason::turn);
  if (progress || awaited) {
    idle_since_ns_.store(0, std::memory_order_relaxed);
    return 0;
  }
  if (!engine_->transfers_under_way()) return no_poll;
  const std::uint64_t now_ns = clock_.now_ns();
  std::uint64_t since_ns = idle_since_ns_.load(std::memory_order_relaxed);
  if (since_ns == 0) idle_since_ns_.store(since_ns = now_ns, std::memory_order_relaxed);
  const std::uint64_t idle_ns = now_ns - since_ns;
  return idle_ns < eager_ns ? 0 : std::min(idle_ns / 8, longest_pause_ns);
}

// ---- without a hardware fault ----

void far_pager::fetch(const std::byte* address, std::size_t bytes, bool write) {
  if (bytes == 0) return;
  const page_id first = page_at(address);
  const page_id last = page_at(address + (bytes - 1));
  if (last > first) {
    // Each of the pages is waited for below.
    static_cast<void>(prefetch_range({first, static_cast<std::size_t>(last - first + 1)}, nullptr));
  }
  for (page_id page = first; page <= last; ++page) {
    if (engine_->accessible(page, write)) continue;
    if (on_fiber()) {
      // A worker's signals are blocked already.
      resolve_on_fiber(page, write, miss_waiter::place::call);
    } else {
      const platform::signal_shield shield;
      resolve_on_thread(page, write);
    }
  }
}

void far_pager::prefetch(const std::byte* address, std::size_t bytes) {
  if (bytes == 0) return;
  const page_id first = page_at(address);
  if (prefetch_range({first, static_cast<std::size_t>(page_at(address + (bytes - 1)) - first + 1)}, nullptr)) {
    look_after_transfers();
  }
}

// `about`: what a hint said of the range, or null. Returns whether something is on its way now, which the caller looks
// after, or waits for.
bool far_pager::prefetch_range(page_range range, const hint* about) noexcept {
  // Mostly everything is here already: then nothing dearer than this look.
  while (range.count > 0 && !engine_->is_remote(range.first)) range = {range.first + 1, range.count - 1};
  if (range.count == 0) return false;
  const bool write = about != nullptr && about->write;
  const std::optional<unsigned> priority = about != nullptr ? std::optional(about->eviction_priority) : std::nullopt;
  std::optional<platform::runtime_section> section;
  if (!on_fiber()) section.emplace();
  // What is not read ahead now is waited for later: the time is better spent on making room. Once only: a range that is
  // larger than the budget would push out its own beginning.
  if (!engine_->has_frames_ahead() && reclaim_at_miss()) look_after_transfers();
  bool started = false;
  while (range.count > 0 && engine_->has_frames_ahead()) {
    const page_range part{range.first, std::min(range.count, engine::batch_pages)};
    engine::fetcher* const by = try_lock_fetcher();
    if (by == nullptr) break;
    const std::lock_guard guard(by->lock, std::adopt_lock);
    started |= engine_->prefetch(*by, part, write, priority) > 0;
    range = {range.first + part.count, range.count - part.count};
  }
  return started;
}

}  // namespace far::pager
