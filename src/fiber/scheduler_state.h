// The state that a scheduler's workers share: the workers, which of them are idle, and the lives of fibers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "fiber/blocking.h"
#include "fiber/control_block.h"
#include "fiber/options.h"
#include "fiber/poller_list.h"
#include "fiber/stack_pool.h"
#include "fiber/statistics.h"
#include "fiber/worker.h"

namespace far::fiber {

class scheduler_state {
 public:
  explicit scheduler_state(const scheduler_options& chosen);
  ~scheduler_state();  // waits until every fiber has ended
  scheduler_state(const scheduler_state&) = delete;
  scheduler_state& operator=(const scheduler_state&) = delete;

  // ---- fibers ----

  // Returns when every fiber has ended.
  void wait_for_all() noexcept;
  // A fiber that is not submitted yet. Throws std::system_error when there is no memory for its stack.
  [[nodiscard]] control_block& create(const spawn_options& how, std::size_t closure_bytes);
  // Instead of submit(), when its closure could not be made.
  void discard(control_block& fresh) noexcept;
  void submit(control_block& fresh) noexcept;
  // The caller owns it: it claimed its waiter, or the fiber has just left its stack. Any thread.
  void make_ready(control_block& one) noexcept;
  void note_end(control_block& ended) noexcept;

  // ---- for workers ----

  [[nodiscard]] bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire); }
  [[nodiscard]] unsigned worker_count() const noexcept { return static_cast<unsigned>(workers_.size()); }
  [[nodiscard]] worker& worker_at(unsigned index) noexcept { return *workers_[index]; }
  [[nodiscard]] std::uint64_t idle_spin_ns() const noexcept { return idle_spin_ns_; }
  [[nodiscard]] std::uint64_t now_ns() const noexcept {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  // Deadlines of workers that are busy with one fiber.
  unsigned expire_for_others(std::uint64_t now_ns) noexcept;
  void note_spinning(bool begins) noexcept { spinning_.fetch_add(begins ? 1u : ~0u); }
  void note_roused(bool found_work) noexcept;
  void rouse_for_leftovers() noexcept;
  // Wakes a worker that sleeps, if any.
  void rouse_one() noexcept;

  // Going to sleep: announce, look once more, sleep, withdraw. withdraw_idle() returns false when somebody else did it.
  void announce_idle(worker& sleepy) noexcept;
  [[nodiscard]] bool must_stay_awake(worker& sleepy) noexcept;
  [[nodiscard]] bool withdraw_idle(worker& awake) noexcept;
  // One of the sleeping workers watches the pollers and everybody's deadlines.
  [[nodiscard]] bool begin_watch() noexcept { return !watched_.exchange(true); }
  void end_watch() noexcept { watched_.store(false); }
  // How long it may sleep; 0: not at all. Afterwards it calls note_awake().
  [[nodiscard]] std::uint64_t longest_sleep_ns(worker& sleepy, bool watches) noexcept;
  void note_awake(std::uint64_t slept_at_most_ns) noexcept;
  // A deadline was set, or a poller wants to be called: somebody must look after it even if this worker gets busy.
  void note_pending() noexcept {
    if (careless_.load() > 0) rouse_one();
  }

  [[nodiscard]] statistics snapshot() const noexcept;

  poller_list pollers;
  helper_pool helpers;

 private:
  void stop_workers() noexcept;
  bool rouse(worker& asleep) noexcept;
  void push_here(worker& here, control_block& one) noexcept;
  void push_from_outside(control_block& one) noexcept;

  std::vector<std::unique_ptr<worker>> workers_;
  const std::shared_ptr<stack_pool> stacks_ = std::make_shared<stack_pool>();
  const std::uint64_t idle_spin_ns_;
  std::atomic<bool> stopping_{false};
  std::atomic<unsigned> next_home_{0};
  std::atomic<std::uint64_t> spawned_{0};
  std::atomic<std::uint64_t> live_{0};
  std::atomic<std::uint64_t> calls_from_outside_{0};
  platform::waker drained_;

  alignas(64) std::atomic<unsigned> idle_{0};
  std::atomic<unsigned> spinning_{0};
  std::atomic<bool> watched_{false};
  std::atomic<unsigned> careless_{0};  // workers that sleep, or are about to, with nothing to look after
  // How many single fibers in a row are left to their own worker before another is woken for one. Grows while the woken
  // find nothing to steal.
  std::atomic<unsigned> doubt_{0};
  std::atomic<unsigned> doubts_left_{0};
  std::atomic<std::uint64_t> roused_{0};
};

}  // namespace far::fiber
