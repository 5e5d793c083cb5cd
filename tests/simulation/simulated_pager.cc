#include "simulated_pager.h"

#include <mutex>
#include <new>
#include <utility>

#include "engine/thread_misses.h"
#include "trace.h"

namespace far::simulation {

using engine::miss;

simulated_pager::simulated_pager(scheduler& threads, simulated_kernel& kernel, model& expected, engine::engine& engine,
                                 miss_mode mode)
    : threads_(threads),
      kernel_(kernel),
      expected_(expected),
      engine_(engine),
      mode_(mode),
      hinted_(engine, *this, fetchers_, *this) {}

void simulated_pager::start(std::size_t fetchers,
                            std::function<void(page_id page, engine::page_word word)> judge_loss) {
  judge_loss_ = std::move(judge_loss);
  for (std::size_t i = 0; i < fetchers; ++i) fetchers_.add(*engine_.transfers().add_fetcher().value());
  // Servers that hear nothing from the far tier's tending take the program for dead.
  reclaimer_ = threads_.spawn_timely("reclaimer", [this] { run_reclaimer(); });
  if (mode_ == miss_mode::on_fibers) {
    parked_ = std::make_unique<engine::parked_misses>(engine_, *this, fetchers_, *this);
    poller_ = threads_.spawn("poller", [this] { run_poller(); });
  }
  if (mode_ != miss_mode::by_handler) return;
  handlers_own_ = engine_.transfers().add_fetcher().value();
  pending_ = std::make_unique<engine::miss_list>(engine_, *this, *handlers_own_, [this](page_id page) {
    // On a real kernel the process ends here. Here only the access does.
    const scheduler::uninterrupted body;
    if (!note_lost(page)) return false;
    kernel_.wake({page, 1});
    return true;
  });
  handler_ = threads_.spawn("handler", [this] { run_handler(); });
  kernel_.set_handler(handler_);
}

void simulated_pager::stop() {
  stopping_ = true;
  threads_.wake(reclaimer_);
  if (mode_ == miss_mode::by_handler) threads_.wake(handler_);
  if (mode_ == miss_mode::on_fibers) threads_.wake(poller_);
}

void simulated_pager::become_child() {
  mode_ = miss_mode::in_line;
  who_ = engine::caller::of_runtime;  // there is no other thread to leave writes to
}

// ---- the engine's surroundings ----

void simulated_pager::enter() noexcept {
  {
    const scheduler::uninterrupted body;
    const auto found = missing_.find(threads_.current());
    if (found != missing_.end() && threads_.is_stuck_since(found->second.since_slices)) {
      fail("the miss of page %llu is never resolved", static_cast<unsigned long long>(found->second.page));
    }
  }
  threads_.enter_engine();
}

void simulated_pager::rest(std::uint64_t nanoseconds) noexcept {
  const scheduler::uninterrupted body;
  threads_.sleep(nanoseconds);
}

void simulated_pager::wake_background() noexcept {
  const scheduler::uninterrupted body;
  threads_.wake(reclaimer_);
}

engine::read_ahead_state& simulated_pager::streams() noexcept {
  const scheduler::uninterrupted body;
  return *missing_.at(threads_.current()).streams;
}

void simulated_pager::open(ticket& mine) noexcept {
  new (mine.room) parked_fiber{threads_.current(), false};
}

void simulated_pager::park(ticket& mine, place /*from*/) noexcept {
  const scheduler::uninterrupted body;
  const auto& fiber = *std::launder(reinterpret_cast<parked_fiber*>(mine.room));
  while (!fiber.is_woken) threads_.block();
}

void simulated_pager::wake(ticket& one) noexcept {
  const scheduler::uninterrupted body;
  auto& fiber = *std::launder(reinterpret_cast<parked_fiber*>(one.room));
  fiber.is_woken = true;
  threads_.wake(fiber.thread);
}

void simulated_pager::poll_soon() noexcept {
  const scheduler::uninterrupted body;
  threads_.wake(poller_);
}

// ---- misses ----

// A page that was lost a moment ago may have been discarded meanwhile.
bool simulated_pager::note_lost(page_id page) {
  const engine::page_word word = engine_.state_for_tests().pages.load(page);
  if (word.where() != engine::state::lost) return false;
  judge_loss_(page, word);
  expected_.lose(page);
  return true;
}

bool simulated_pager::resolve(engine::read_ahead_state& streams, page_id page, bool write) {
  if (mode_ != miss_mode::by_handler) return resolve_here(streams, page, write);
  kernel_.report_and_wait(page, write);
  return !expected_.is_lost(page);
}

void simulated_pager::begin_miss(engine::read_ahead_state& streams, page_id page) {
  missing_[threads_.current()] = {.streams = &streams, .since_slices = threads_.slices(), .page = page};
}

bool simulated_pager::resolve_here(engine::read_ahead_state& streams, page_id page, bool write) {
  begin_miss(streams, page);
  bool is_lost = false;
  while (!is_lost && resolve_once({.page = page, .write = write}) == miss::state::lost) is_lost = note_lost(page);
  missing_.erase(threads_.current());
  threads_.switch_point();
  return !is_lost;
}

miss::state simulated_pager::resolve_once(engine::wanted_page wanted) {
  const scheduler::preemptible body;
  if (on_fiber()) return parked_->resolve(wanted, place::call);
  return engine::resolve_on_thread(engine_, *this, fetchers_, streams(), wanted, who_);
}

void simulated_pager::hint(engine::read_ahead_state& streams, page_range range, const engine::hint& about) {
  begin_miss(streams, range.first);
  engine::hinted_path::plan chosen;
  {
    const scheduler::engine_call call(threads_);
    chosen = hinted_.look(range.first, range.end() - 1, about);
  }
  threads_.switch_point();
  {
    const scheduler::preemptible body;
    static_cast<void>(hinted_.follow(chosen, about));
  }
  missing_.erase(threads_.current());
}

bool simulated_pager::bring_empty(engine::read_ahead_state& streams, page_range range) {
  begin_miss(streams, range.first);
  bool has_brought = false;
  {
    const scheduler::preemptible body;
    has_brought = hinted_.bring_empty(range, 0);
  }
  missing_.erase(threads_.current());
  threads_.switch_point();
  return has_brought;
}

void simulated_pager::bring(engine::wanted_page wanted) noexcept {
  static_cast<void>(resolve_once(wanted));
}

bool simulated_pager::pin(engine::read_ahead_state& streams, page_id page) {
  while (true) {
    {
      const scheduler::engine_call call(threads_);
      if (engine_.pins().try_pin(page)) return true;
    }
    if (!resolve_here(streams, page, true)) return false;
  }
}

void simulated_pager::unpin(page_id page) {
  const scheduler::engine_call call(threads_);
  engine_.pins().unpin(page);
}

// ---- the pager's threads ----

void simulated_pager::run_handler() {
  while (!stopping_) {
    bool progress = false;
    for (simulated_kernel::reported_fault next; kernel_.read_fault(&next); progress = true) {
      pending_->add(next.page, next.write, next.thread);
    }
    {
      const scheduler::preemptible body;
      const far::lock_guard guard(handlers_own_->lock);
      progress |= pending_->serve();
    }
    if (engine_.eviction().wants_background()) wake_background();
    if (progress) {
      threads_.switch_point();
    } else if (pending_->empty() && handlers_own_->idle()) {
      threads_.block();
    } else {
      threads_.block(50'000);
    }
  }
}

void simulated_pager::run_reclaimer() {
  engine::background work(engine_, *this);
  while (!stopping_) {
    std::uint64_t pause_ns = 0;
    {
      const scheduler::preemptible body;
      pause_ns = work.step();
    }
    if (pause_ns == 0) {
      threads_.switch_point();
    } else {
      threads_.block(pause_ns);
    }
  }
}

void simulated_pager::run_poller() {
  while (!stopping_) {
    std::uint64_t pause_ns = 0;
    {
      const scheduler::preemptible body;
      pause_ns = parked_->poll();
    }
    if (pause_ns == 0) {
      threads_.switch_point();
    } else if (pause_ns == engine::no_poll) {
      threads_.block();
    } else {
      threads_.block(pause_ns);
    }
  }
}

}  // namespace far::simulation
