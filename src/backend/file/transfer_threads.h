// Threads that make blocking transfers, for kernels that accept none without waiting.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "base/spin_lock.h"
#include "platform/local_memory.h"
#include "platform/own_descriptors.h"

namespace far::backend {

class threads_channel;

// One transfer from submit() to poll().
struct transfer_job {
  request io;
  int error_code = 0;
  threads_channel* owner = nullptr;
  transfer_job* next = nullptr;
};

// First in, first out, without memory of its own.
class job_queue {
 public:
  [[nodiscard]] bool empty() const { return first_ == nullptr; }

  void push(transfer_job& added) {
    added.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &added;
    last_ = &added;
  }

  // Requires: it is not empty.
  [[nodiscard]] transfer_job& pop() {
    transfer_job& taken = *first_;
    first_ = taken.next;
    return taken;
  }

 private:
  transfer_job* first_ = nullptr;
  transfer_job* last_ = nullptr;
};

class transfer_maker {
 public:
  virtual ~transfer_maker() = default;
  // Makes one transfer, and returns 0 or an errno value. Thread-safe. `bounce`: bounce_bytes (window.h), a page's
  // alignment, the caller's own.
  [[nodiscard]] virtual int make(const request& io, std::byte* bounce) const = 0;
};

// There is one thread more than the largest number of transfers so far under way at a time, up to most_threads. The
// thread that takes a transfer starts the thread for the next one, so that only threads of the runtime start threads:
// submit() may be called where the C library must not be entered.
//
// After a fork the child has no such threads. It may neither use nor destroy this, whose lock may be held for ever.
class transfer_threads {
 public:
  static constexpr std::size_t most_threads = 8;

  // Requires: `maker` outlives the threads. Errors: the kernel starts no more threads.
  [[nodiscard]] static result<std::unique_ptr<transfer_threads>> start(const transfer_maker& maker);
  // Requires: no transfers are under way.
  ~transfer_threads();
  transfer_threads(const transfer_threads&) = delete;
  transfer_threads& operator=(const transfer_threads&) = delete;

  // Whether its threads are in this process.
  [[nodiscard]] bool is_in_its_process() const;

  [[nodiscard]] std::size_t thread_count() const;

  [[nodiscard]] const transfer_maker& maker() const { return maker_; }

  // Requires: `added` has `count` transfers.
  void add(job_queue& added, std::size_t count);

 private:
  explicit transfer_threads(const transfer_maker& maker);

  // Returns 0 or an errno value.
  [[nodiscard]] int start_thread(std::size_t index);
  void run();
  // The next transfer, or nullptr when there will be none. `is_new`: the thread counts as idle already.
  [[nodiscard]] transfer_job* take(bool is_new);
  // Starts threads until one is idle for the next transfer. Releases the lock meanwhile.
  void add_threads() FAR_REQUIRES(lock_);

  const transfer_maker& maker_;
  const int owner_process_;
  std::array<std::thread, most_threads> threads_;

  mutable spin_lock lock_;
  job_queue waiting_ FAR_GUARDED_BY(lock_);
  std::size_t waiting_count_ FAR_GUARDED_BY(lock_) = 0;
  std::size_t thread_count_ FAR_GUARDED_BY(lock_) = 1;
  std::size_t thread_limit_ FAR_GUARDED_BY(lock_) = most_threads;
  std::size_t idle_ FAR_GUARDED_BY(lock_) = 1;  // or just being started
  bool adding_threads_ FAR_GUARDED_BY(lock_) = false;
  bool stopping_ FAR_GUARDED_BY(lock_) = false;
  // Changes whenever idle threads have something to look at; they sleep on it.
  std::atomic<std::uint32_t> changes_{0};
};

// A queue of transfers that threads make; several overlap, and they complete in any order.
//
// A caller that has not asked for the descriptor and submits a single transfer is about to wait for it. So submit()
// makes it at once: two thread switches would cost as much as a transfer of many devices.
class threads_channel final : public channel {
 public:
  static constexpr std::size_t largest_depth = 1 << 20;

  // Requires: `threads` outlive the channel. Errors: depth out of range.
  [[nodiscard]] static result<std::unique_ptr<channel>> open(transfer_threads& threads, std::size_t depth);
  ~threads_channel() override;

  [[nodiscard]] std::size_t submit(std::span<const request> batch) override;
  [[nodiscard]] std::size_t poll(std::span<completion> done) override;
  void wait(std::uint64_t timeout_ns) override;
  [[nodiscard]] std::size_t in_flight() const override { return in_flight_; }
  [[nodiscard]] int event_descriptor() const override;
  void close_in_child() override { platform::close_own_descriptor(std::exchange(event_, -1)); }

  // For the threads: the transfer has been made. The channel may be gone when this returns.
  void finish(transfer_job& job);

 private:
  threads_channel(transfer_threads& threads, std::size_t depth);
  void make_at_once(const request& io);
  void signal() const FAR_REQUIRES(lock_);

  transfer_threads& threads_;
  std::byte* const bounce_;
  std::vector<transfer_job, platform::local_allocator<transfer_job>> jobs_;
  job_queue unused_;
  std::size_t in_flight_ = 0;
  std::uint32_t polled_ = 0;  // of `finished_count_`

  mutable spin_lock lock_;
  job_queue done_ FAR_GUARDED_BY(lock_);
  bool waits_ FAR_GUARDED_BY(lock_) = false;
  mutable int event_ = -1;  // written by the channel's owner alone, with the lock; the owner reads it without
  mutable bool signalled_ FAR_GUARDED_BY(lock_) = false;  // the descriptor is readable; then `done_` is not empty
  std::atomic<std::uint32_t> finished_count_{0};          // written with the lock held; wait() sleeps on it
};

}  // namespace far::backend
