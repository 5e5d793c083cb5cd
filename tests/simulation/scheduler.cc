#include "scheduler.h"

#include <algorithm>
#include <cstdio>

#include "base/backoff.h"
#include "base/check.h"

// This file must not be compiled with -fsanitize-coverage: the function below would call itself.

namespace {

// The running thread, for the function that the compiler calls.
far::simulation::scheduler* active = nullptr;
auto how_preempted = far::simulation::scheduler::preemption::never;
std::uint64_t blocks_left = 0;

}  // namespace

extern "C" void __sanitizer_cov_trace_pc() {
  if (how_preempted != far::simulation::scheduler::preemption::anywhere || --blocks_left > 0) return;
  active->yield();
}

// A thread that waits for a lock gives up the simulated CPU, and not the real one.
void far::backoff::pause() noexcept {
  if (how_preempted != simulation::scheduler::preemption::never) active->yield();
}

namespace far::simulation {

scheduler::scheduler(random_source& random, simulated_clock& time, const schedule& chosen)
    : random_(random), time_(time), chosen_(chosen) {
  FAR_CHECK(active == nullptr, "one simulation at a time");
  active = this;
}

scheduler::~scheduler() {
  active = nullptr;
}

scheduler::moment scheduler::now() {
  if (active == nullptr) return {};
  return {active->slices_, active->digest_};
}

thread_id scheduler::spawn(std::string name, std::function<void()> body) {
  const thread_id id = threads_.size();
  threads_.push_back(std::make_unique<simulated_thread>());
  threads_.back()->name = std::move(name);
  threads_.back()->body = std::make_unique<fiber>([this, id, body = std::move(body)] {
    body();
    threads_[id]->now = status::ended;
  });
  return id;
}

thread_id scheduler::spawn_timely(std::string name, std::function<void()> body) {
  const thread_id id = spawn(std::move(name), std::move(body));
  threads_[id]->is_timely = true;
  return id;
}

thread_id scheduler::spawn_elsewhere(std::string name, std::function<void()> body) {
  const thread_id id = spawn_timely(std::move(name), std::move(body));
  threads_[id]->is_elsewhere = true;
  return id;
}

void scheduler::run(const std::function<void()>& between_slices) {
  while (simulated_thread* const next = choose()) {
    ++slices_;
    if (seek_slices_ > 0) --seek_slices_;
    note(current_ + 1);
    blocks_left = 1 + random_.below(2 * chosen_.slice_blocks);
    how_preempted = next->how;
    running_ = true;
    next->body->resume();
    running_ = false;
    next->how = how_preempted;
    perhaps_freeze(next);
    how_preempted = preemption::never;
    time_.advance_to(time_.now_ns() + 1 + random_.below(2 * chosen_.slice_ns));
    between_slices();
  }
}

// Nullptr when all threads have ended.
scheduler::simulated_thread* scheduler::choose() {
  wake_sleepers();
  while (time_.now_ns() < stopped_until_ns_) {
    if (simulated_thread* const found = choose_among(choice::elsewhere)) return found;
    if (!jump_to_next_deadline(choice::elsewhere, stopped_until_ns_)) break;
  }
  if (seek_slices_ > 0 && calls_ > 0) {
    constexpr choice sought = choice::towards_quiescence;
    if (simulated_thread* const found = choose_among(sought)) return found;
    if (jump_to_next_deadline(sought)) return choose_among(sought);
  }
  if (simulated_thread* const any = choose_among(choice::awake)) return any;
  if (simulated_thread* const any = choose_among(choice::all)) return any;
  if (jump_to_next_deadline(choice::all)) return choose_among(choice::all);
  const bool all_ended =
      std::all_of(threads_.begin(), threads_.end(), [](const auto& thread) { return thread->now == status::ended; });
  if (!all_ended) report_deadlock();
  return nullptr;
}

bool scheduler::counts(const simulated_thread& thread, choice allowed) {
  switch (allowed) {
    case choice::awake:
    case choice::all: return true;
    case choice::elsewhere: return thread.is_elsewhere;
    case choice::towards_quiescence: return thread.inside_engine || thread.is_timely;
  }
  return true;
}

scheduler::simulated_thread* scheduler::choose_among(choice allowed) {
  const auto may_run = [&](const simulated_thread& thread) {
    if (thread.now != status::runnable || !counts(thread, allowed)) return false;
    return allowed != choice::awake || thread.frozen_until_slice <= slices_;
  };
  std::uint64_t candidates = 0;
  for (const auto& thread : threads_) candidates += may_run(*thread);
  if (candidates == 0) return nullptr;
  std::uint64_t drawn = random_.below(candidates);
  for (thread_id id = 0; id < threads_.size(); ++id) {
    if (!may_run(*threads_[id]) || drawn-- > 0) continue;
    current_ = id;
    return threads_[id].get();
  }
  return nullptr;
}

// As when the kernel gives the CPU to somebody else for some milliseconds, in the middle of anything.
void scheduler::perhaps_freeze(simulated_thread* thread) {
  if (thread->now != status::runnable || !random_.chance(chosen_.freeze_per_mille)) return;
  thread->frozen_until_slice = slices_ + random_.between(50, 5000);
}

void scheduler::wake_sleepers() {
  for (const auto& thread : threads_) {
    const bool waits = thread->now == status::sleeping || thread->now == status::blocked;
    if (waits && thread->wake_at_ns <= time_.now_ns()) thread->now = status::runnable;
  }
}

bool scheduler::jump_to_next_deadline(choice allowed, std::uint64_t latest_ns) {
  std::uint64_t first = latest_ns;
  for (const auto& thread : threads_) {
    const bool waits = thread->now == status::sleeping || thread->now == status::blocked;
    if (waits && counts(*thread, allowed)) first = std::min(first, thread->wake_at_ns);
  }
  if (first == never) return false;
  time_.advance_to(first);
  wake_sleepers();
  return true;
}

void scheduler::report_deadlock() const {
  std::fprintf(stderr, "simulation: every thread waits for another:\n");
  for (const auto& thread : threads_) {
    if (thread->now == status::ended) continue;
    std::fprintf(stderr, "  %s%s\n", thread->name.c_str(), thread->inside_engine ? ", inside the engine" : "");
  }
  check_failed(__FILE__, __LINE__, "a thread can run", "a lost wake-up");
}

void scheduler::suspend() {
  // Kept per thread by run(), because another one runs now.
  threads_[current_]->body->suspend();
}

void scheduler::yield() {
  if (running_) suspend();
}

void scheduler::switch_point() {
  if (running_ && random_.chance(chosen_.switch_per_mille)) suspend();
}

void scheduler::wait(status how, std::uint64_t nanoseconds) {
  simulated_thread& self = *threads_[current_];
  self.wake_at_ns = nanoseconds == never ? never : time_.now_ns() + nanoseconds;
  self.now = how;
  suspend();
}

void scheduler::sleep(std::uint64_t nanoseconds) {
  if (running_) return wait(status::sleeping, nanoseconds);
  time_.advance_to(time_.now_ns() + nanoseconds);
}

void scheduler::block() {
  block(never);
}

void scheduler::block(std::uint64_t nanoseconds) {
  simulated_thread& self = *threads_[current_];
  if (!self.woken) wait(status::blocked, nanoseconds);
  self.woken = false;
}

void scheduler::wake(thread_id thread) {
  threads_[thread]->woken = true;
  if (threads_[thread]->now == status::blocked) threads_[thread]->now = status::runnable;
}

void scheduler::keep_only_current() {
  for (thread_id id = 0; id < threads_.size(); ++id) {
    if (id != current_ && !threads_[id]->is_elsewhere) threads_[id]->now = status::ended;
    threads_[id]->inside_engine = false;
  }
  calls_ = 0;
  how_preempted = preemption::at_waits;
}

void scheduler::enter_engine() {
  if (!running_) return;
  FAR_CHECK(!threads_[current_]->inside_engine, "the engine is not called from within");
  threads_[current_]->inside_engine = true;
  ++calls_;
  switch_point();
  threads_[current_]->outside = how_preempted;
  how_preempted = preemption::anywhere;
}

void scheduler::leave_engine() {
  if (!running_) return;
  how_preempted = threads_[current_]->outside;
  threads_[current_]->inside_engine = false;
  --calls_;
}

scheduler::preempted::preempted(preemption how) : before_(how_preempted) {
  how_preempted = how;
}

scheduler::preempted::~preempted() {
  how_preempted = before_;
}

}  // namespace far::simulation
