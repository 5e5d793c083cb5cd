#include "fiber/worker.h"

#include <cxxabi.h>
#include <pthread.h>
#include <sched.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "far/detail/scope_record.h"
#include "fiber/overflow.h"
#include "fiber/scheduler_state.h"
#include "fiber/waiter.h"
#include "platform/program_thread.h"

namespace far::fiber {
namespace {

constinit thread_local worker* this_worker = nullptr;

constexpr unsigned pauses_between_looks = 32;
constexpr unsigned looks_before_yielding = 3;

}  // namespace

// Not inline, and opaque to the optimiser: a fiber that continued on another thread must not use the address of the old
// thread's variable.
[[gnu::noinline]] worker* worker::current() noexcept {
  asm volatile("");
  return this_worker;
}

control_block* current_fiber() noexcept {
  const worker* const on = worker::current();
  return on == nullptr ? nullptr : on->current_;
}

// The first thing on a fiber's stack.
struct fiber_entry {
  static void start(void* carried) noexcept {
    const worker::departure came = *static_cast<worker::departure*>(carried);
    control_block& self = *came.on->current_;
    came.on->arrive(came);
    run_body(self);
    if (self.who.scopes != nullptr) self.who.release_scopes(std::exchange(self.who.scopes, nullptr));
    worker::current()->end(self);
  }

  static void run_body(control_block& self) noexcept {
    try {
      self.body(self.closure);
    } catch (const std::exception& thrown) {
      log_line(log_level::error,
               "fiber '%s' (number %llu) ended by an exception: %s; the program is stopped, as for a thread: catch it "
               "inside the fiber",
               self.name, static_cast<unsigned long long>(self.number), thrown.what());
      std::terminate();
    } catch (...) {
      log_line(
          log_level::error,
          "fiber '%s' (number %llu) ended by an exception that is no std::exception; the program is stopped, as for "
          "a thread: catch it inside the fiber",
          self.name, static_cast<unsigned long long>(self.number));
      std::terminate();
    }
  }
};

void worker::prepare(control_block& fresh) {
  auto* const top = static_cast<std::byte*>(fresh.closure);
  fresh.where.prepare(fresh.memory.low, static_cast<std::size_t>(top - fresh.memory.low), &fiber_entry::start);
}

void worker::start(int cpu) {
  looks_.resize(shared_.worker_count());
  char name[16];
  std::snprintf(name, sizeof name, "far-worker-%u", index_ % 1000);
  thread_ = platform::start_program_thread(name, [this, cpu] { loop(cpu); });
}

void worker::pin_thread(int cpu) const {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<std::size_t>(cpu), &only);
  if (const int failed = pthread_setaffinity_np(pthread_self(), sizeof only, &only); failed != 0) {
    log_line(log_level::warning, "cannot pin worker %u to CPU %d (%s); it runs anywhere", index_, cpu,
             std::strerror(failed));
  }
}

void worker::loop(int cpu) {
  if (cpu >= 0) pin_thread(cpu);
  const overflow_stack for_overflows;
  exceptions_of_thread_ = abi::__cxa_get_globals();
  this_worker = this;
  bool roused = false;
  while (!shared_.stopping()) {
    serve();
    control_block* next = find_work();
    if (next == nullptr) next = spin_for_work();
    if (roused) shared_.note_roused(next != nullptr);
    roused = false;
    if (next == nullptr) {
      roused = sleep();
      continue;
    }
    if (std::exchange(watches_, false)) shared_.end_watch();
    if (shared_.pollers.due_ns() != poller_list::none || timers.earliest_ns() != timer_heap::none) {
      shared_.note_pending();
    }
    run(*next);
  }
  this_worker = nullptr;
}

void worker::serve() noexcept {
  since_poll_ = 0;
  const std::uint64_t due = shared_.pollers.due_ns();
  const std::uint64_t earliest = timers.earliest_ns();
  if (due == poller_list::none && earliest == timer_heap::none) return;
  const std::uint64_t now = shared_.now_ns();
  if (due <= now) counts.polls.add(shared_.pollers.serve(now));
  if (earliest <= now) counts.deadlines.add(timers.expire(now));
}

// ---- switching ----

void worker::set_current(control_block* next) noexcept {
  current_ = next;
  detail::scope_record_here = next == nullptr ? nullptr : next->who.scopes;
}

void worker::run(control_block& next) noexcept {
  departure mine{.how = leaving::loop, .on = this};
  set_current(&next);
  next.home = this;
  const auto came = *static_cast<departure*>(context::switch_to(own_, next.where, &mine, false));
  // The fiber that came back has set current_ to nullptr.
  arrive(came);
}

// Not instrumented, for the reason that context::switch_to is not: the other side reads `how`.
__attribute__((no_sanitize_address)) void worker::leave(control_block& self, departure how) noexcept {
  how.on = this;
  how.fiber = &self;
  control_block* const next = ++since_poll_ < switches_between_polls ? ready.pop() : nullptr;
  set_current(next);
  self.has_waited = true;
  context* to = &own_;
  if (next != nullptr) {
    next->home = this;
    to = &next->where;
  }
  counts.switches.add(1);
  std::memcpy(&self.exceptions, exceptions_of_thread_, sizeof self.exceptions);
  const auto came = *static_cast<departure*>(context::switch_to(self.where, *to, &how, how.how == leaving::ends));
  // Perhaps on another thread: `this` is the worker that was left.
  came.on->arrive(came);
}

// On the side that a switch arrived at.
void worker::arrive(const departure& came) noexcept {
  static_assert(sizeof(control_block::exceptions_under_way) == 2 * sizeof(void*));
  constexpr control_block::exceptions_under_way nothing;
  std::memcpy(exceptions_of_thread_, current_ == nullptr ? &nothing : &current_->exceptions, sizeof nothing);
  switch (came.how) {
    case leaving::loop: break;
    case leaving::yields: shared_.make_ready(*came.fiber); break;
    case leaving::parks: {
      std::uint32_t still = waiter::idle;
      if (!came.wait->state_.compare_exchange_strong(still, waiter::parked, std::memory_order_acq_rel)) {
        shared_.make_ready(*came.fiber);  // woken already
      }
      break;
    }
    case leaving::ends:
      counts.ended.add(1);
      shared_.note_end(*came.fiber);
      break;
  }
}

void worker::yield(control_block& self) noexcept {
  if (ready.size() == 0 && since_poll_ + 1 < switches_between_polls) {
    ++since_poll_;
    return;
  }
  leave(self, {.how = leaving::yields});
}

void worker::park(control_block& self, waiter& wait) noexcept {
  counts.parks.add(1);
  leave(self, {.how = leaving::parks, .wait = &wait});
}

void worker::end(control_block& self) noexcept {
  leave(self, {.how = leaving::ends});
  FAR_CHECK(false, "a fiber went on after its end");
}

// ---- finding work ----

control_block* worker::find_work() noexcept {
  control_block* const own = ready.pop();
  return own != nullptr ? own : steal();
}

// A single fiber in another queue is left to its owner at first: it may have been woken by a fiber that is about to
// park. It is stolen when the owner has not taken any fiber since the last look.
control_block* worker::steal() noexcept {
  const unsigned count = shared_.worker_count();
  for (unsigned i = 0; i < count; ++i) {
    const unsigned index = (next_victim_ + i) % count;
    if (index == index_) continue;
    worker& victim = shared_.worker_at(index);
    looked_at& look = looks_[index];
    const std::size_t there = victim.ready.stealable();
    const std::uint64_t pops = victim.ready.pops();
    const bool stuck = look.had_one && look.pops == pops;
    look = {pops, there > 0};
    if (there == 0 || (there == 1 && !stuck)) continue;
    control_block* taken[run_queue::most_stolen];
    const std::size_t stolen = victim.ready.steal(taken);
    if (stolen == 0) continue;
    counts.stolen.add(stolen);
    next_victim_ = index;
    for (std::size_t k = 1; k < stolen; ++k) ready.push(*taken[k]);
    return taken[0];
  }
  return nullptr;
}

control_block* worker::spin_for_work() noexcept {
  shared_.note_spinning(true);
  const std::uint64_t until = shared_.now_ns() + shared_.idle_spin_ns();
  control_block* next = nullptr;
  unsigned looks = 0;
  while (next == nullptr && !shared_.stopping()) {
    serve();
    next = find_work();
    if (next != nullptr) break;
    const std::uint64_t now = shared_.now_ns();
    counts.deadlines.add(shared_.expire_for_others(now));
    if (now >= until) break;
    if (++looks < looks_before_yielding) {
      for (unsigned i = 0; i < pauses_between_looks; ++i) cpu_relax();
    } else {
      sched_yield();  // the thread that will make a fiber ready may be waiting for this CPU
    }
  }
  shared_.note_spinning(false);
  if (next != nullptr) shared_.rouse_for_leftovers();
  return next;
}

// Returns whether somebody woke us for a fiber.
bool worker::sleep() noexcept {
  shared_.announce_idle(*this);
  if (!shared_.must_stay_awake(*this)) {
    if (!watches_) watches_ = shared_.begin_watch();
    const std::uint64_t at_most_ns = shared_.longest_sleep_ns(*this, watches_);
    if (at_most_ns > 0) {
      counts.sleeps.add(1);
      sleeper.sleep(at_most_ns);
    } else {
      sched_yield();
    }
    shared_.note_awake(at_most_ns);
  }
  return !shared_.withdraw_idle(*this);
}

}  // namespace far::fiber
