// Simulated threads, and who of them runs when. The seed decides.
//
// How threads are interleaved. Every simulated thread is a fiber, and it may lose the CPU
//   - at every call of the simulated kernel, backend and clock (switch_point), and
//   - between any two basic blocks of the engine: the engine's sources are compiled once more for the simulation with
//     -fsanitize-coverage=trace-pc, which calls a function of ours at the start of each, and after a number of calls
//     that the seed draws, that function switches.
// So a thread can be preempted inside an engine call, with locks held, as a real kernel does it; a thread that spins
// for a lock passes basic blocks too, so the holder gets to run, and no hook is needed in the locks. The alternative,
// nested accesses at chosen points of one stack, reaches none of the interleavings inside the engine and must know
// which locks are held. OS threads that pass a baton would do the same at ten times the cost of a switch.
//
// A run follows from its seed for one build: other basic blocks, other run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fiber.h"
#include "platform/clock.h"
#include "random_source.h"

namespace far::simulation {

class simulated_clock final : public platform::clock {
 public:
  [[nodiscard]] std::uint64_t now_ns() const override { return now_ns_; }
  void advance_to(std::uint64_t ns) {
    if (ns > now_ns_) now_ns_ = ns;
  }

 private:
  std::uint64_t now_ns_ = 1'000'000'000;
};

struct schedule {
  std::uint64_t slice_blocks = 100;               // basic blocks of the engine in a slice, on average
  std::uint64_t switch_per_mille = 500;           // at how many of the switch points
  std::uint64_t slice_ns = 1000;                  // the mean time of a slice
  std::uint64_t freeze_per_mille = 0;             // of the slices end with the thread not running for a long time
  std::uint64_t longest_wait_slices = 9'000'000;  // a wait that lasts longer will never end
};

using thread_id = std::size_t;

class scheduler {
 public:
  scheduler(random_source& random, simulated_clock& time, const schedule& chosen);
  ~scheduler();
  scheduler(const scheduler&) = delete;
  scheduler& operator=(const scheduler&) = delete;

  thread_id spawn(std::string name, std::function<void()> body);
  // The same for a thread whose silence others take for a failure: it is not kept waiting while quiescence is sought.
  thread_id spawn_timely(std::string name, std::function<void()> body);
  // The same for a thread of another process.
  thread_id spawn_elsewhere(std::string name, std::function<void()> body);

  // Runs the threads until all have ended; calls `between_slices` after each slice. Stops the process when every thread
  // waits for another.
  void run(const std::function<void()>& between_slices);

  // For the threads. Outside of any thread they do nothing, except that sleep() advances the clock.
  void switch_point();
  void yield();
  void sleep(std::uint64_t nanoseconds);
  // Waits for wake(). A wake() that came since the last block() is not lost.
  void block();
  // The same, for so long at most.
  void block(std::uint64_t nanoseconds);
  void wake(thread_id thread);
  // As in the child of a fork: of all the threads of this process only the calling one goes on, outside of the engine.
  void keep_only_current();
  [[nodiscard]] thread_id current() const { return current_; }
  [[nodiscard]] bool inside_thread() const { return running_; }
  [[nodiscard]] const std::string& name_of(thread_id thread) const { return threads_[thread]->name; }

  // While one exists, the calling thread is inside a call of the engine, and may be preempted anywhere in it.
  class engine_call {
   public:
    explicit engine_call(scheduler& owner) : owner_(owner) { owner_.enter_engine(); }
    ~engine_call() { owner_.leave_engine(); }
    engine_call(const engine_call&) = delete;
    engine_call& operator=(const engine_call&) = delete;

   private:
    scheduler& owner_;
  };
  void enter_engine();
  void leave_engine();

  // Where a thread may lose the CPU, besides at switch points.
  enum class preemption : std::uint8_t {
    at_waits,  // outside the engine: where it waits for a lock
    anywhere,  // inside, and in what belongs to it
    never,     // inside the simulated environment
  };

  // While one exists, the calling thread is preempted so.
  class preempted {
   public:
    explicit preempted(preemption how);
    ~preempted();
    preempted(const preempted&) = delete;
    preempted& operator=(const preempted&) = delete;

   private:
    preemption before_;
  };
  // Between any two basic blocks, as inside the engine.
  struct preemptible : preempted {
    preemptible() : preempted(preemption::anywhere) {}
  };
  // Not at all: for the simulated environment's own data.
  struct uninterrupted : preempted {
    uninterrupted() : preempted(preemption::never) {}
  };

  // Whether no thread is inside a call of the engine.
  [[nodiscard]] bool quiescent() const { return calls_ == 0; }
  // For some slices to come, only threads inside the engine run, and timely ones, so that it may become quiescent. Time
  // passes meanwhile, and much of it when all of them wait for a transfer.
  void seek_quiescence(std::uint64_t slices) { seek_slices_ = slices; }

  // For so long only threads of other processes run, as when this one is stopped. Sleeps end meanwhile.
  void stop_process(std::uint64_t nanoseconds) { stopped_until_ns_ = time_.now_ns() + nanoseconds; }

  // Where the simulation is that runs, for its last words; all 0 when none does.
  struct moment {
    std::uint64_t slice = 0;
    std::uint64_t digest = 0;
  };
  [[nodiscard]] static moment now();

  [[nodiscard]] std::uint64_t slices() const { return slices_; }
  // Whether somebody who has waited since then, for so many things one after another, waits in vain.
  [[nodiscard]] bool is_stuck_since(std::uint64_t slice, std::uint64_t waits = 1) const {
    return slices_ - slice > waits * chosen_.longest_wait_slices;
  }
  // Differs between runs that differ in any choice.
  [[nodiscard]] std::uint64_t digest() const { return digest_; }
  void note(std::uint64_t value) { digest_ = scramble(digest_ ^ value) + value; }

 private:
  enum class status : std::uint8_t { runnable, sleeping, blocked, ended };
  struct simulated_thread {
    std::string name;
    std::unique_ptr<fiber> body;
    status now = status::runnable;
    std::uint64_t wake_at_ns = 0;
    bool woken = false;
    bool inside_engine = false;
    bool is_timely = false;
    bool is_elsewhere = false;
    preemption how = preemption::at_waits;
    preemption outside = preemption::at_waits;  // once it leaves the engine
    std::uint64_t frozen_until_slice = 0;
  };

  static constexpr std::uint64_t never = ~std::uint64_t{0};

  void wait(status how, std::uint64_t nanoseconds);
  void suspend();
  void wake_sleepers();
  [[nodiscard]] simulated_thread* choose();
  enum class choice : std::uint8_t { awake, all, elsewhere, towards_quiescence };
  [[nodiscard]] static bool counts(const simulated_thread& thread, choice allowed);
  [[nodiscard]] simulated_thread* choose_among(choice allowed);
  void perhaps_freeze(simulated_thread* thread);
  [[nodiscard]] bool jump_to_next_deadline(choice allowed, std::uint64_t latest_ns = never);
  [[noreturn]] void report_deadlock() const;

  random_source& random_;
  simulated_clock& time_;
  const schedule chosen_;
  std::vector<std::unique_ptr<simulated_thread>> threads_;
  thread_id current_ = 0;
  bool running_ = false;
  std::uint64_t calls_ = 0;
  std::uint64_t slices_ = 0;
  std::uint64_t seek_slices_ = 0;
  std::uint64_t stopped_until_ns_ = 0;  // this process
  std::uint64_t digest_ = 0;
};

}  // namespace far::simulation
