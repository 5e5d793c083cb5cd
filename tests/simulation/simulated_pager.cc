#include "simulated_pager.h"

#include <mutex>

#include "trace.h"

namespace far::simulation {

using engine::outcome;

simulated_pager::simulated_pager(scheduler& threads, simulated_kernel& kernel, simulated_backend& far, model& expected,
                                 engine::engine& engine, bool in_line)
    : threads_(threads), kernel_(kernel), far_(far), expected_(expected), engine_(engine), in_line_(in_line) {}

void simulated_pager::start(std::size_t fetchers) {
  for (std::size_t i = 0; i < fetchers; ++i) fetchers_.push_back(engine_.add_fetcher().value());
  reclaimer_ = threads_.spawn("reclaimer", [this] { run_reclaimer(); });
  if (in_line_) return;
  handlers_own_ = engine_.add_fetcher().value();
  handler_ = threads_.spawn("handler", [this] { run_handler(); });
  kernel_.set_handler(handler_);
}

void simulated_pager::stop() {
  stopping_ = true;
  threads_.wake(reclaimer_);
  if (!in_line_) threads_.wake(handler_);
}

outcome simulated_pager::miss(engine::fetcher& by, engine::stream_table& streams, page_id page, bool write,
                              bool may_fill) {
  const scheduler::engine_call call(threads_);
  return engine_.miss(by, streams, page, write, may_fill);
}

bool simulated_pager::poll(engine::fetcher& by, engine::caller who) {
  const scheduler::engine_call call(threads_);
  return by.poll(who);
}

engine::fetcher& simulated_pager::lock_some_fetcher() {
  while (true) {
    for (std::size_t i = 0; i < fetchers_.size(); ++i) {
      engine::fetcher& candidate = *fetchers_[(threads_.current() + i) % fetchers_.size()];
      if (candidate.lock.try_lock()) return candidate;
    }
    threads_.yield();
  }
}

void simulated_pager::reclaim_at_miss(engine::caller who) {
  {
    const scheduler::engine_call call(threads_);
    static_cast<void>(engine_.reclaim_at_miss(who));
  }
  if (engine_.has_left_writes()) threads_.wake(reclaimer_);
}

void simulated_pager::wait_for_frame() {
  threads_.wake(reclaimer_);
  const std::uint64_t since = threads_.slices();
  while (!engine_.has_frame_for_miss()) {
    if (threads_.slices() - since > longest_wait_slices) fail("a miss waits for ever for a free frame");
    bool progress = false;
    {
      const scheduler::engine_call call(threads_);
      progress = engine_.reclaim(who_);
    }
    if (engine_.has_left_writes()) threads_.wake(reclaimer_);
    if (!progress) threads_.yield();
  }
}

// What was lost a moment ago may have been discarded meanwhile.
bool simulated_pager::note_lost(page_id page) {
  if (engine_.state_for_tests().pages.load(page).where() != engine::state::lost) return false;
  if (far_.failed_reads() < 2 && far_.lies() == 0) {
    fail("page %llu is lost, and no read failed", static_cast<unsigned long long>(page));
  }
  expected_.lose(page);
  return true;
}

bool simulated_pager::resolve(engine::stream_table& streams, page_id page, bool write) {
  if (in_line_) return resolve_here(streams, page, write);
  kernel_.report_and_wait(page, write);
  return !expected_.is_lost(page);
}

bool simulated_pager::resolve_here(engine::stream_table& streams, page_id page, bool write, bool may_fill) {
  const std::uint64_t since = threads_.slices();
  outcome reached = outcome::busy;
  reclaim_at_miss(who_);
  while (reached != outcome::resolved) {
    if (threads_.slices() - since > longest_wait_slices) {
      fail("the miss of page %llu is never resolved", static_cast<unsigned long long>(page));
    }
    {
      engine::fetcher& by = lock_some_fetcher();
      const std::lock_guard guard(by.lock, std::adopt_lock);
      reached = miss(by, streams, page, write, may_fill);
      while (reached == outcome::in_flight && engine_.on_its_way(page) && !by.only_rests()) {
        if (!poll(by, who_)) by.wait(1'000'000);
        threads_.switch_point();
      }
    }
    if (reached == outcome::in_flight && engine_.accessible(page, write)) break;
    if (reached == outcome::in_flight && engine_.on_its_way(page)) threads_.sleep(500'000);
    if (reached == outcome::lost && note_lost(page)) return false;
    if (reached == outcome::no_budget) wait_for_frame();
    if (reached == outcome::busy) {
      const scheduler::engine_call call(threads_);
      static_cast<void>(engine_.help(who_));
    }
    threads_.switch_point();
  }
  look_after_transfers();
  return true;
}

void simulated_pager::hint(engine::stream_table& streams, page_id page, const pager::hint& about) {
  {
    const scheduler::engine_call call(threads_);
    if (engine_.expect_use(page, about.write, about.sequential) != engine::engine::prospect::missing) return;
    engine_.set_eviction_priority(page, about.eviction_priority);
  }
  bool started = false;
  if (about.read_ahead_pages > 0 || about.prefetch) {
    if (!engine_.has_frames_ahead()) {
      reclaim_at_miss(who_);
      look_after_transfers();
    }
    engine::fetcher& by = lock_some_fetcher();
    const std::lock_guard guard(by.lock, std::adopt_lock);
    const scheduler::engine_call call(threads_);
    const page_range range{page, 1 + static_cast<std::size_t>(about.read_ahead_pages)};
    started = engine_.prefetch(by, range, about.write, about.eviction_priority) > 0;
  }
  threads_.switch_point();
  if (about.prefetch) {
    if (started) look_after_transfers();
    return;
  }
  static_cast<void>(resolve_here(streams, page, about.write, false));
  const scheduler::engine_call call(threads_);
  static_cast<void>(engine_.expect_use(page, about.write, about.sequential));
}

void simulated_pager::look_after_transfers() {
  if (engine_.wants_background() || engine_.transfers_unattended()) threads_.wake(reclaimer_);
}

bool simulated_pager::pin(engine::stream_table& streams, page_id page) {
  while (true) {
    {
      const scheduler::engine_call call(threads_);
      if (engine_.try_pin(page)) return true;
    }
    if (!resolve_here(streams, page, true)) return false;
  }
}

void simulated_pager::unpin(page_id page) {
  const scheduler::engine_call call(threads_);
  engine_.unpin(page);
}

void simulated_pager::run_handler() {
  while (!stopping_) {
    bool progress = false;
    for (simulated_kernel::reported_fault next; kernel_.read_fault(&next); progress = true) pending_.push_back({next});
    while (!handlers_own_->lock.try_lock()) threads_.yield();
    {
      const std::lock_guard guard(handlers_own_->lock, std::adopt_lock);
      progress |= poll(*handlers_own_, engine::caller::of_runtime);
      progress |= try_pending();
    }
    if (engine_.wants_background()) threads_.wake(reclaimer_);
    if (progress) {
      threads_.switch_point();
    } else if (pending_.empty() && handlers_own_->idle()) {
      threads_.block();
    } else {
      threads_.block(50'000);
    }
  }
}

bool simulated_pager::try_pending() {
  std::size_t kept = 0;
  for (const pending_fault& waiting : pending_) {
    if (!try_one(waiting)) pending_[kept++] = waiting;
  }
  const bool progress = kept < pending_.size();
  pending_.resize(kept);
  return progress;
}

bool simulated_pager::try_one(const pending_fault& waiting) {
  const page_id page = waiting.fault.page;
  engine::stream_table& streams = handlers_streams_[waiting.fault.thread % handlers_streams_.size()];
  reclaim_at_miss(engine::caller::of_runtime);
  switch (miss(*handlers_own_, streams, page, waiting.fault.write)) {
    case outcome::resolved: return true;
    case outcome::in_flight: return false;
    case outcome::busy: {
      const scheduler::engine_call call(threads_);
      static_cast<void>(engine_.help(engine::caller::of_runtime));
      return false;
    }
    case outcome::no_budget: {
      const scheduler::engine_call call(threads_);
      static_cast<void>(engine_.reclaim(engine::caller::of_runtime));
      return false;
    }
    case outcome::lost:
      // On a real kernel the process ends here. Here only the access does.
      if (!note_lost(page)) return false;
      kernel_.wake({page, 1});
      return true;
  }
  return false;
}

void simulated_pager::run_reclaimer() {
  while (!stopping_) {
    bool progress = false;
    {
      const scheduler::engine_call call(threads_);
      progress |= engine_.reclaim_in_background();
    }
    {
      const scheduler::engine_call call(threads_);
      progress |= engine_.help(engine::caller::of_runtime);
    }
    if (progress) {
      threads_.switch_point();
      continue;
    }
    const bool under_way = engine_.transfers_unattended();
    threads_.block(under_way ? 50'000 : (engine_.wants_background() ? 10'000'000 : 1'000'000'000));
  }
}

}  // namespace far::simulation
