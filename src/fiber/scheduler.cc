#include "fiber/scheduler.h"

#include "base/backoff.h"
#include "base/use_check.h"
#include "fiber/scheduler_state.h"

namespace far::fiber {

handle& handle::operator=(handle&& other) noexcept {
  if (this != &other) {
    if (joinable()) join();
    fiber_ = std::exchange(other.fiber_, nullptr);
  }
  return *this;
}

handle::~handle() {
  if (joinable()) join();
}

bool handle::join_until(time_point deadline) noexcept {
  FAR_CHECK_USE(joinable(), "join a handle that has a fiber");
  FAR_CHECK_USE(fiber_ != current_fiber(), "a fiber cannot join itself");
  waiter mine;
  waiter* seen = nullptr;
  if (fiber_->joiner.compare_exchange_strong(seen, &mine, std::memory_order_acq_rel) && !mine.park_until(deadline)) {
    seen = &mine;
    if (fiber_->joiner.compare_exchange_strong(seen, nullptr, std::memory_order_acq_rel)) return false;
    // It has just ended, and its worker has `mine` in hand for another moment.
    backoff waiting;
    while (fiber_->joiner.load(std::memory_order_acquire) != control_block::notified()) waiting.pause();
  }
  detach();
  return true;
}

void handle::detach() noexcept {
  FAR_CHECK_USE(joinable(), "detach a handle that has a fiber");
  control_block* const fiber = std::exchange(fiber_, nullptr);
  control_block::drop_reference(*fiber);
}

scheduler::scheduler(const scheduler_options& chosen) : state_(std::make_unique<scheduler_state>(chosen)) {}
scheduler::~scheduler() = default;

control_block& scheduler::create(const spawn_options& how, std::size_t closure_bytes) {
  return state_->create(how, closure_bytes);
}

void scheduler::discard(control_block& fresh) noexcept {
  state_->discard(fresh);
}

handle scheduler::submit(control_block& fresh) noexcept {
  handle mine(fresh);
  state_->submit(fresh);
  return mine;
}

unsigned scheduler::add_poller(poller one) {
  const unsigned number = state_->pollers.add(std::move(one));
  state_->note_pending();
  return number;
}

void scheduler::remove_poller(unsigned number) noexcept {
  state_->pollers.remove(number);
}

void scheduler::poll_soon(unsigned number) noexcept {
  state_->pollers.soon(number);
  state_->note_pending();
}

void scheduler::wait_for_all() const noexcept {
  state_->wait_for_all();
}

bool scheduler::is_running_caller() const noexcept {
  worker* const on = worker::current();
  return (on != nullptr && &on->shared() == state_.get()) || state_->helpers.is_running_caller();
}

unsigned scheduler::workers() const noexcept {
  return state_->worker_count();
}

statistics scheduler::snapshot() const noexcept {
  return state_->snapshot();
}

}  // namespace far::fiber
