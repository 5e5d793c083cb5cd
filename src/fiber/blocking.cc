#include "fiber/blocking.h"

#include <pthread.h>

#include <exception>

#include "base/log.h"
#include "fiber/scheduler_state.h"

namespace far::fiber {
namespace {

constinit thread_local const helper_pool* pool_of_thread = nullptr;

}  // namespace

helper_pool* current_helpers() noexcept {
  const control_block* const self = current_fiber();
  return self == nullptr ? nullptr : &self->owner->helpers;
}

void helper_pool::run(job& one) noexcept {
  calls_.fetch_add(1, std::memory_order_relaxed);
  bool more = false;
  {
    const lock_guard guard(lock_);
    more = jobs_under_way_ >= starting_or_running_ && starting_or_running_ < most_threads_;
    ++jobs_under_way_;
    if (more) {
      ++starting_or_running_;
    } else {
      append(one);
    }
  }
  if (more) {
    const bool has_started = start_thread();
    const lock_guard guard(lock_);
    if (!has_started) --starting_or_running_;
    append(one);
  }
  jobs_.release();
  if (more) run_without_threads();
  one.done.park();
}

// Where no thread could be started, the last caller that tried runs what there is: others rely on a thread of its.
void helper_pool::run_without_threads() noexcept {
  while (true) {
    job* next = nullptr;
    {
      const lock_guard guard(lock_);
      if (starting_or_running_ > 0) return;
      next = take();
    }
    if (next == nullptr) return;
    run_now(*next);
  }
}

void helper_pool::run_now(job& taken) noexcept {
  taken.run(taken);
  {
    const lock_guard guard(lock_);
    --jobs_under_way_;
  }
  taken.done.wake();
}

void helper_pool::append(job& last) noexcept {
  last.next = nullptr;
  (last_ == nullptr ? first_ : last_->next) = &last;
  last_ = &last;
}

bool helper_pool::start_thread() noexcept {
  try {
    {
      const lock_guard guard(lock_);
      threads_.reserve(most_threads_);  // no thread is left over without a place
    }
    std::thread fresh([this] { work(); });
    const lock_guard guard(lock_);
    threads_.push_back(std::move(fresh));
    started_.fetch_add(1, std::memory_order_relaxed);
    return true;
  } catch (const std::exception& refused) {
    log_line(log_level::warning, "cannot start a helper thread for blocking calls (%s); they wait for the others",
             refused.what());
    return false;
  }
}

helper_pool::job* helper_pool::take() noexcept {
  job* const taken = first_;
  if (taken != nullptr) first_ = taken->next;
  if (first_ == nullptr) last_ = nullptr;
  return taken;
}

void helper_pool::work() noexcept {
  pthread_setname_np(pthread_self(), "far-helper");
  pool_of_thread = this;
  while (true) {
    jobs_.acquire();
    job* one = nullptr;
    {
      const lock_guard guard(lock_);
      one = take();
    }
    if (one == nullptr) {
      if (stopping_.load(std::memory_order_acquire)) return;
      continue;
    }
    run_now(*one);
  }
}

bool helper_pool::is_running_caller() const noexcept {
  return pool_of_thread == this;
}

void helper_pool::stop() noexcept {
  lock_.assert_held();  // no job is under way, so no helper changes anything
  stopping_.store(true, std::memory_order_release);
  jobs_.release(threads_.size());
  for (std::thread& one : threads_) one.join();
  threads_.clear();
}

}  // namespace far::fiber
