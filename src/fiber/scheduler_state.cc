#include "fiber/scheduler_state.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <new>

#include "base/backoff.h"
#include "base/log.h"
#include "base/use_check.h"
#include "fiber/overflow.h"
#include "fiber/waiter.h"

namespace far::fiber {
namespace {

constexpr std::uint64_t no_limit_ns = 3'600'000'000'000;  // sleepers look again once an hour, for no reason
constexpr std::uint64_t shortest_sleep_ns = 5'000;        // below this the system call costs more than the wait
// A sleeping worker looks at least so often whether a busy one neglects its fibers, deadlines or pollers.
constexpr std::uint64_t heartbeat_ns = 2'000'000;
constexpr unsigned most_doubt = 63;

std::vector<int> allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

scheduler_state::scheduler_state(const scheduler_options& chosen)
    : helpers(chosen.most_helpers), idle_spin_ns_(static_cast<std::uint64_t>(chosen.idle_spin.count())) {
  const std::vector<int> cpus = allowed_cpus();
  const std::size_t count = chosen.workers != 0 ? chosen.workers : std::max<std::size_t>(1, cpus.size());
  watch_for_overflows();
  for (unsigned i = 0; i < count; ++i) workers_.push_back(std::make_unique<worker>(*this, i));
  try {
    for (unsigned i = 0; i < count; ++i) {
      workers_[i]->start(chosen.pin_workers && !cpus.empty() ? cpus[i % cpus.size()] : -1);
    }
  } catch (...) {
    stop_workers();
    throw;
  }
}

void scheduler_state::stop_workers() noexcept {
  stopping_.store(true, std::memory_order_release);
  for (const auto& one : workers_) one->sleeper.wake();
  for (const auto& one : workers_) one->join();
  stop_watching_for_overflows();
}

scheduler_state::~scheduler_state() {
  FAR_CHECK_USE(worker::current() == nullptr || &worker::current()->shared() != this,
                "a scheduler must not be destroyed by one of its own fibers");
  wait_for_all();
  helpers.stop();
  stop_workers();
  // A thread that made the last fiber ready may still be on its way out of make_ready().
  backoff waiting;
  while (calls_from_outside_.load(std::memory_order_acquire) > 0) waiting.pause();
}

void scheduler_state::wait_for_all() noexcept {
  constexpr unsigned seconds_in_silence = 10;
  for (unsigned seconds = 0; live_.load(std::memory_order_acquire) > 0; ++seconds) {
    if (seconds == seconds_in_silence) {
      log_line(log_level::warning,
               "a far::runtime that ends has waited for %zu of its fibers for %u seconds, and waits on; if they wait "
               "for who destroys it, they wait for ever",
               static_cast<std::size_t>(live_.load()), seconds);
    }
    drained_.sleep(1'000'000'000);
  }
}

// ---- fibers ----

control_block& scheduler_state::create(const spawn_options& how, std::size_t closure_bytes) {
  const stack memory = stacks_->take(how.stack_bytes != 0 ? how.stack_bytes : default_stack_bytes());
  control_block& fresh = control_block::create_on(memory, closure_bytes);
  fresh.owner = this;
  fresh.stacks = stacks_;
  fresh.usual = how.level;
  fresh.number = spawned_.fetch_add(1, std::memory_order_relaxed) + 1;
  worker::prepare(fresh);
  fresh.set_name(how.name);
  live_.fetch_add(1, std::memory_order_relaxed);
  return fresh;
}

void scheduler_state::discard(control_block& fresh) noexcept {
  fresh.references.store(1, std::memory_order_relaxed);
  control_block::drop_reference(fresh);
  if (live_.fetch_sub(1, std::memory_order_acq_rel) == 1) drained_.wake();
}

void scheduler_state::submit(control_block& fresh) noexcept {
  fresh.home = workers_[next_home_.fetch_add(1, std::memory_order_relaxed) % workers_.size()].get();
  make_ready(fresh);
}

void scheduler_state::make_ready(control_block& one) noexcept {
  worker* const here = worker::current();
  if (here != nullptr && &here->shared() == this) {
    push_here(*here, one);
  } else {
    push_from_outside(one);
  }
}

// Once pushed, the fiber is not ours any more.
void scheduler_state::push_here(worker& here, control_block& one) noexcept {
  if (one.pinned != nullptr && one.pinned != &here) {
    worker& only = *one.pinned;
    only.ready.push(one);
    rouse(only);
    return;
  }
  const bool pinned = one.pinned != nullptr;
  const std::size_t there = here.ready.push(one);
  if (pinned || idle_.load() == 0 || spinning_.load() > 0) return;
  if (there == 1) {
    const unsigned left = doubts_left_.load(std::memory_order_relaxed);
    if (left > 0) return doubts_left_.store(left - 1, std::memory_order_relaxed);
  }
  rouse_one();
}

void scheduler_state::push_from_outside(control_block& one) noexcept {
  calls_from_outside_.fetch_add(1);
  const bool pinned = one.pinned != nullptr;
  worker& to = pinned ? *one.pinned : *one.home;
  to.ready.push(one);
  if (!rouse(to) && !pinned && spinning_.load() == 0) rouse_one();
  calls_from_outside_.fetch_sub(1);
}

void scheduler_state::note_end(control_block& ended) noexcept {
  // In two steps, so that a joiner that gives up at its deadline can tell when we no longer use its waiter.
  waiter* const joiner = ended.joiner.exchange(control_block::ended(), std::memory_order_acq_rel);
  if (joiner != nullptr) joiner->wake();
  ended.joiner.store(control_block::notified(), std::memory_order_release);
  control_block::drop_reference(ended);
  if (live_.fetch_sub(1, std::memory_order_acq_rel) == 1) drained_.wake();
}

// ---- idle workers ----

bool scheduler_state::rouse(worker& asleep) noexcept {
  if (!asleep.idle.load() || !asleep.idle.exchange(false)) return false;
  idle_.fetch_sub(1);
  roused_.fetch_add(1, std::memory_order_relaxed);
  asleep.sleeper.wake();
  return true;
}

void scheduler_state::rouse_one() noexcept {
  if (idle_.load() == 0) return;
  for (const auto& one : workers_) {
    if (rouse(*one)) return;
  }
}

void scheduler_state::note_roused(bool found_work) noexcept {
  const unsigned doubt = doubt_.load(std::memory_order_relaxed);
  const unsigned now = found_work ? 0 : std::min(2 * doubt + 1, most_doubt);
  if (now == doubt && now == 0) return;
  doubt_.store(now, std::memory_order_relaxed);
  doubts_left_.store(now, std::memory_order_relaxed);
}

// While a worker spins, others are not woken. When it stops spinning because it has found a fiber, it must look after
// the rest. It takes the locks, see run_queue::size_for_sleep.
void scheduler_state::rouse_for_leftovers() noexcept {
  if (idle_.load() == 0 || spinning_.load() > 0) return;
  for (const auto& one : workers_) {
    if (one->ready.stealable_for_sleep() > 0) return rouse_one();
  }
}

void scheduler_state::announce_idle(worker& sleepy) noexcept {
  sleepy.idle.store(true);
  // No worker runs: the next one to become busy starts without doubts.
  if (idle_.fetch_add(1) + 1 == worker_count()) doubts_left_.store(0, std::memory_order_relaxed);
}

bool scheduler_state::must_stay_awake(worker& sleepy) noexcept {
  if (stopping() || sleepy.ready.size_for_sleep() > 0) return true;
  for (const auto& one : workers_) {
    // One fiber is not stolen at the first look, but then its owner is awake.
    if (one.get() != &sleepy && one->ready.stealable_for_sleep() > 1) return true;
  }
  return false;
}

bool scheduler_state::withdraw_idle(worker& awake) noexcept {
  if (!awake.idle.exchange(false)) return false;
  idle_.fetch_sub(1);
  return true;
}

unsigned scheduler_state::expire_for_others(std::uint64_t now_ns) noexcept {
  unsigned expired = 0;
  for (const auto& one : workers_) expired += one->timers.expire(now_ns);
  return expired;
}

std::uint64_t scheduler_state::longest_sleep_ns(worker& sleepy, bool watches) noexcept {
  // Set before looking: a thread that adds something after we looked sees it and rouses a worker.
  careless_.fetch_add(1);
  const std::uint64_t polls_ns = pollers.due_ns();
  std::uint64_t deadlines_ns = timer_heap::none;
  for (const auto& one : workers_) deadlines_ns = std::min(deadlines_ns, one->timers.earliest_for_sleep());
  const std::uint64_t all_ns = std::min(polls_ns, deadlines_ns);
  const bool somebody_runs = idle_.load() < worker_count();
  if (all_ns == timer_heap::none && !somebody_runs) return no_limit_ns;
  careless_.fetch_sub(1);
  const std::uint64_t mine_ns = watches ? all_ns : sleepy.timers.earliest_ns();
  const std::uint64_t now = now_ns();
  if (mine_ns <= now) return 0;
  std::uint64_t limit_ns = mine_ns - now;
  if (somebody_runs || !watches) limit_ns = std::min(limit_ns, heartbeat_ns);
  return limit_ns < shortest_sleep_ns ? 0 : std::min(limit_ns, no_limit_ns - 1);
}

void scheduler_state::note_awake(std::uint64_t slept_at_most_ns) noexcept {
  if (slept_at_most_ns == no_limit_ns) careless_.fetch_sub(1);
}

statistics scheduler_state::snapshot() const noexcept {
  statistics sum;
  for (const auto& one : workers_) {
    sum.ended += one->counts.ended.value();
    sum.switches += one->counts.switches.value();
    sum.parks += one->counts.parks.value();
    sum.fault_parks += one->counts.fault_parks.value();
    sum.stolen += one->counts.stolen.value();
    sum.polls += one->counts.polls.value();
    sum.deadlines += one->counts.deadlines.value();
    sum.sleeps += one->counts.sleeps.value();
    sum.turns_given += one->ready.turns_given();
  }
  sum.spawned = spawned_.load(std::memory_order_relaxed);
  sum.roused = roused_.load(std::memory_order_relaxed);
  sum.blocking_calls = helpers.calls();
  sum.helpers = helpers.threads();
  sum.stack_bytes = stacks_->mapped_bytes();
  return sum;
}

}  // namespace far::fiber
