#include "backend/file/transfer_threads.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "backend/file/window.h"
#include "base/check.h"
#include "base/log.h"
#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/own_descriptors.h"
#include "platform/runtime_thread.h"

namespace far::backend {

// ---- threads ----

result<std::unique_ptr<transfer_threads>> transfer_threads::start(const transfer_maker& maker) {
  std::unique_ptr<transfer_threads> started(new transfer_threads(maker));
  if (const int code = started->start_thread(0); code != 0) {
    return error{std::string("cannot start a thread for transfers of 'file:' (") + std::strerror(code) +
                     "); raise the limit on processes (ulimit -u), or permit io_uring",
                 code};
  }
  return started;
}

transfer_threads::transfer_threads(const transfer_maker& maker) : maker_(maker), owner_process_(getpid()) {}

transfer_threads::~transfer_threads() {
  {
    const lock_guard guard(lock_);
    FAR_CHECK(waiting_.empty(), "threads were stopped with transfers under way");
    stopping_ = true;
    changes_.fetch_add(1);
  }
  for (std::size_t i = 0; i < most_threads; ++i) platform::futex_wake_one(&changes_);
  // A thread that is still being started is started by one before it, which is joined first.
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

bool transfer_threads::is_in_its_process() const {
  return owner_process_ == getpid();
}

std::size_t transfer_threads::thread_count() const {
  const lock_guard guard(lock_);
  return thread_count_;
}

int transfer_threads::start_thread(std::size_t index) {
  try {
    threads_[index] = platform::start_runtime_thread("farheap-io", [this] { run(); });
    return 0;
  } catch (const std::system_error& refused) {
    return refused.code().value();
  }
}

void transfer_threads::add(job_queue& added, std::size_t count) {
  std::size_t sleepers = 0;
  {
    const lock_guard guard(lock_);
    while (!added.empty()) waiting_.push(added.pop());
    waiting_count_ += count;
    changes_.fetch_add(1);
    sleepers = std::min(count, idle_);
  }
  for (std::size_t i = 0; i < sleepers; ++i) platform::futex_wake_one(&changes_);
}

void transfer_threads::run() {
  std::byte* const bounce = platform::map_local(bounce_bytes);
  for (transfer_job* next = take(true); next != nullptr; next = take(false)) {
    next->error_code = maker_.make(next->io, bounce);
    next->owner->finish(*next);
  }
  platform::unmap_local(bounce, bounce_bytes);
}

transfer_job* transfer_threads::take(bool is_new) {
  const lock_guard guard(lock_);
  if (!is_new) ++idle_;
  while (waiting_.empty()) {
    if (stopping_) return nullptr;
    const std::uint32_t seen = changes_.load();
    lock_.unlock();
    static_cast<void>(platform::futex_sleep(changes_, seen, platform::no_deadline_ns));
    lock_.lock();
  }
  --idle_;
  --waiting_count_;
  transfer_job* const taken = &waiting_.pop();
  if (!adding_threads_) add_threads();
  return taken;
}

void transfer_threads::add_threads() {
  adding_threads_ = true;
  while (thread_count_ < thread_limit_ && idle_ <= waiting_count_) {
    ++idle_;
    const std::size_t index = thread_count_++;
    lock_.unlock();
    const int code = start_thread(index);
    lock_.lock();
    if (code == 0) continue;
    --idle_;
    thread_limit_ = --thread_count_;
    lock_.unlock();
    log_line(log_level::warning, "far tier 'file:': at most %zu transfers run at a time (%s)", index,
             std::strerror(code));
    lock_.lock();
  }
  adding_threads_ = false;
}

// ---- channel ----

result<std::unique_ptr<channel>> threads_channel::open(transfer_threads& threads, std::size_t depth) {
  if (depth == 0 || depth > largest_depth) {
    return error{"a channel of 'file:' holds between 1 and " + std::to_string(largest_depth) + " requests, not " +
                     std::to_string(depth),
                 EINVAL};
  }
  return std::unique_ptr<channel>(new threads_channel(threads, depth));
}

threads_channel::threads_channel(transfer_threads& threads, std::size_t depth)
    : threads_(threads), bounce_(platform::map_local(bounce_bytes)), jobs_(depth) {
  for (transfer_job& job : jobs_) {
    job.owner = this;
    unused_.push(job);
  }
}

threads_channel::~threads_channel() {
  FAR_CHECK(in_flight_ == 0, "a channel was destroyed with transfers in flight");
  platform::unmap_local(bounce_, bounce_bytes);
  if (event_ < 0) return;
  platform::disown_descriptor(event_);
  close(event_);
}

std::size_t threads_channel::submit(std::span<const request> batch) {
  const std::size_t taken = std::min(batch.size(), jobs_.size() - in_flight_);
  if (taken == 0) return 0;
  if (batch.size() == 1 && event_ < 0) {
    make_at_once(batch.front());
    return 1;
  }
  job_queue added;
  for (const request& io : batch.first(taken)) {
    transfer_job& used = unused_.pop();
    used.io = io;
    added.push(used);
  }
  in_flight_ += taken;
  threads_.add(added, taken);
  return taken;
}

void threads_channel::make_at_once(const request& io) {
  transfer_job& used = unused_.pop();
  used.io = io;
  used.error_code = threads_.maker().make(io, bounce_);
  ++in_flight_;
  finish(used);
}

void threads_channel::finish(transfer_job& job) {
  std::atomic<std::uint32_t>* const word = &finished_count_;
  bool wake = false;
  {
    const lock_guard guard(lock_);
    done_.push(job);
    finished_count_.fetch_add(1, std::memory_order_release);
    signal();
    wake = waits_;
  }
  // From here on the channel may be gone.
  if (wake) platform::futex_wake_one(word);
}

// Requires: something is done.
void threads_channel::signal() const {
  const std::uint64_t one = 1;
  if (event_ < 0 || signalled_) return;
  signalled_ = write(event_, &one, sizeof one) == sizeof one;
}

std::size_t threads_channel::poll(std::span<completion> done) {
  if (finished_count_.load(std::memory_order_acquire) == polled_) return 0;
  std::size_t count = 0;
  {
    const lock_guard guard(lock_);
    while (count < done.size() && !done_.empty()) {
      transfer_job& job = done_.pop();
      done[count++] = {job.io.cookie, job.error_code};
      unused_.push(job);
    }
    if (done_.empty() && signalled_) {
      std::uint64_t signals = 0;
      static_cast<void>(!read(event_, &signals, sizeof signals));
      signalled_ = false;
    }
  }
  polled_ += static_cast<std::uint32_t>(count);
  in_flight_ -= count;
  return count;
}

void threads_channel::wait(std::uint64_t timeout_ns) {
  const std::uint64_t now_ns = platform::monotonic_clock().now_ns();
  const std::uint64_t deadline_ns =
      timeout_ns < platform::no_deadline_ns - now_ns ? now_ns + timeout_ns : platform::no_deadline_ns;
  std::uint32_t seen = 0;
  {
    const lock_guard guard(lock_);
    if (in_flight_ == 0 || !done_.empty()) return;
    seen = finished_count_.load();
    waits_ = true;
  }
  while (finished_count_.load() == seen && platform::futex_sleep(finished_count_, seen, deadline_ns)) {
  }
  const lock_guard guard(lock_);
  waits_ = false;
}

int threads_channel::event_descriptor() const {
  const lock_guard guard(lock_);
  if (event_ >= 0) return event_;
  event_ = platform::own_descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!done_.empty()) signal();
  return event_;
}

}  // namespace far::backend
