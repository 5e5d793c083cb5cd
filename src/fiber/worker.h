// The OS thread that runs fibers: its queue of ready fibers, its deadlines, and its loop.
//
// A fiber that stops switches straight to the next one. Every few switches, and when nothing is ready, it switches to
// the worker's own context instead, whose loop calls pollers, expires deadlines, steals, spins and sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "fiber/context.h"
#include "fiber/control_block.h"
#include "fiber/run_queue.h"
#include "fiber/statistics.h"
#include "fiber/timer_heap.h"
#include "platform/local_memory.h"
#include "platform/waker.h"

namespace far::fiber {

class scheduler_state;
class waiter;

// The fiber that runs on the calling thread, or nullptr.
[[nodiscard]] control_block* current_fiber() noexcept;

class worker {
 public:
  // Pollers and deadlines are looked at after at most so many switches.
  static constexpr unsigned switches_between_polls = 8;

  worker(scheduler_state& shared, unsigned index) : shared_(shared), index_(index) {}
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  // Sets up the stack of a fiber that has not run yet, so that a worker can switch to it.
  static void prepare(control_block& fresh);

  // Starts the thread. `cpu` < 0: wherever the system puts it.
  void start(int cpu);
  // After the scheduler is told to stop. Also when it was not started.
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  // The worker that the calling thread is, or nullptr. Never keep it across anything that may park: the fiber may
  // continue on another worker.
  [[nodiscard]] static worker* current() noexcept;

  // Called on a fiber, about itself. Each returns when the fiber continues, perhaps on another worker.
  void yield(control_block& self) noexcept;
  void park(control_block& self, waiter& wait) noexcept;  // the fiber is parked once its stack was left
  [[noreturn]] void end(control_block& self) noexcept;

  [[nodiscard]] scheduler_state& shared() const noexcept { return shared_; }
  [[nodiscard]] unsigned index() const noexcept { return index_; }

  run_queue ready;
  timer_heap timers;
  platform::waker sleeper;
  std::atomic<bool> idle{false};  // asleep or about to be; the thread that clears it wakes the worker
  worker_counts counts;

 private:
  friend control_block* current_fiber() noexcept;
  friend struct fiber_entry;

  enum class leaving { loop, yields, parks, ends };

  // The message from the side that leaves to the side that arrives, which acts on it: only then is the stack free.
  struct departure {
    leaving how = leaving::loop;
    control_block* fiber = nullptr;
    waiter* wait = nullptr;
    worker* on = nullptr;
  };

  struct looked_at {  // another worker's queue, when this one last looked
    std::uint64_t pops = 0;
    bool had_one = false;
  };

  void loop(int cpu);
  void pin_thread(int cpu) const;
  void leave(control_block& self, departure how) noexcept;
  void set_current(control_block* next) noexcept;
  void run(control_block& next) noexcept;
  void arrive(const departure& came) noexcept;
  void serve() noexcept;
  [[nodiscard]] control_block* find_work() noexcept;
  [[nodiscard]] control_block* steal() noexcept;
  [[nodiscard]] control_block* spin_for_work() noexcept;
  [[nodiscard]] bool sleep() noexcept;

  scheduler_state& shared_;
  const unsigned index_;
  context own_;
  control_block* current_ = nullptr;
  unsigned since_poll_ = 0;
  unsigned next_victim_ = 0;
  bool watches_ = false;                  // it is the one that watches (scheduler_state.h)
  void* exceptions_of_thread_ = nullptr;  // abi::__cxa_get_globals()
  std::vector<looked_at, platform::local_allocator<looked_at>> looks_;
  std::thread thread_;
};

}  // namespace far::fiber
