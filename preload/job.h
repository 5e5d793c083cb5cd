// A process tree is one job: its processes share one budget, and their statistics are reported together. There is no
// daemon: each process publishes its counts a few times a second, and the first one decides for all.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/spin_lock.h"
#include "engine/statistics.h"
#include "preload/job_region.h"
#include "preload/process_usage.h"

namespace far::preload {

// One process of a job, as it was last published.
struct job_process {
  pid_t pid = 0;
  bool running = false;
  char program[sizeof(job_slot::program) + 1] = {};
  std::uint64_t started_ns = 0;  // CLOCK_MONOTONIC
  std::uint64_t elapsed_ns = 0;  // from its start to now, or to its end
  engine::statistics counted;
  process_usage used;
};

// The sums of all. Figures of "now" count running processes only. Peaks are common peaks, sampled five times a second,
// and never below the peak of any one process.
struct job_totals {
  engine::statistics counted;
  process_usage used;  // the peak is that of the largest process
  std::uint64_t elapsed_ns = 0;
  std::uint64_t processes = 0;
  std::uint64_t running = 0;
  std::uint64_t unlisted = 0;  // processes that ended long ago: only the sums contain them
};

// The difference between two counts of one process. A peak of before counts as none.
[[nodiscard]] engine::statistics difference(const engine::statistics& before, const engine::statistics& after) noexcept;

[[nodiscard]] job_totals totals_of(const job_region& region) noexcept;

// Reads slot `index`; false when it has no process. Never waits.
[[nodiscard]] bool read_process(const job_region& region, std::size_t index, job_process& into) noexcept;

// Processes that the last decision reduced, and that do not know it yet or hold more than they may.
struct coming_down {
  std::size_t processes = 0;
  // What they hold above their shares, as far as the newcomer's working minimum does not fit in the budget beside it.
  std::uint64_t excess_bytes = 0;
};

// The calling process as a part of its job.
class job {
 public:
  // Takes a slot. Fails when there is none, or the lock of the job cannot be had.
  [[nodiscard]] static result<std::unique_ptr<job>> join(job_mapping mapping, job_name name);

  // The process ends, or becomes another program by exec without saying so: the kernel releases its locks.
  ~job() = default;
  job(const job&) = delete;
  job& operator=(const job&) = delete;

  // Publishes the counts, decides for all when it is time, and returns the share of this process. None: the process
  // keeps its budget, because each process has its own, or because nothing has been decided yet.
  [[nodiscard]] std::optional<std::uint64_t> exchange(const engine::statistics& counted,
                                                      const process_usage& used) noexcept;

  // Decides at once, and returns the budget granted to this process.
  std::uint64_t ask() noexcept { return ask_and_apply(false); }
  // The same for a process that has no pager yet: what it is granted is the budget that it applies, from now on and in
  // the eyes of the others, who would otherwise take a later, smaller share for the one that it starts with.
  std::uint64_t ask_as_newcomer() noexcept { return ask_and_apply(true); }

  // Only publishes the counts.
  void tell(const engine::statistics& counted, const process_usage& used) noexcept;
  // The same before the process ends. Later publications of the control thread are ignored, so that the sums of a
  // report agree with the processes that it lists.
  void tell_last(const engine::statistics& counted, const process_usage& used) noexcept;

  // Changes the budget of all, at once; it does not follow the machine any more. Requires shares().
  void resize(std::uint64_t budget_bytes) noexcept;

  // In a child of fork, on its only thread: it is not the process that joined.
  void forget_parent() noexcept;

  // In a child of fork that lives on: it takes a slot of its own, and has a share of the budget from now on. Does
  // nothing where it has one.
  [[nodiscard]] result<void> join_as_child(const engine::statistics& since_fork, const process_usage& used);

  // In a child of fork, at its end: publishes its counts since the fork and leaves, whether it had joined or not.
  void record_child(const engine::statistics& since_fork, const process_usage& used) noexcept;

  // This process ends, and its share is free. The last process removes the file, if nobody may come back to it.
  // Afterwards only functions that read may be called.
  void leave() noexcept;

  // True for the first caller in the whole job with this `hash`; for messages that appear once.
  [[nodiscard]] bool first_to_name(std::uint64_t hash) noexcept;

  [[nodiscard]] bool shares() const noexcept { return region().shares.load(std::memory_order_relaxed) != 0; }
  [[nodiscard]] job_region& region() const noexcept { return region_; }
  [[nodiscard]] const job_name& name() const noexcept { return name_; }
  [[nodiscard]] int descriptor() const noexcept;
  // Whether the calling process is the one that joined, and not a child of it.
  [[nodiscard]] bool is_mine() const noexcept;

  // Who has to come down before this process, a newcomer, has memory to fill: writes up to `room` of them.
  [[nodiscard]] coming_down shrunk(std::span<pid_t> room) const noexcept;

 private:
  job(job_mapping mapping, job_name name)
      : name_(std::move(name)), region_(mapping.region()), mapping_(std::move(mapping)) {}

  [[nodiscard]] job_slot& mine() const noexcept FAR_REQUIRES(lock_) { return region().slots[slot_]; }
  [[nodiscard]] bool still_has_slot() const noexcept FAR_REQUIRES(lock_);
  [[nodiscard]] result<void> enter();
  std::uint64_t ask_and_apply(bool applies) noexcept;
  [[nodiscard]] bool take_slot() noexcept FAR_REQUIRES(lock_);
  [[nodiscard]] bool take_slot_again() noexcept FAR_REQUIRES(lock_);
  [[nodiscard]] bool lock_living_job(int deadline_ms) noexcept FAR_REQUIRES(lock_);
  [[nodiscard]] result<void> take_slot_as_child(const engine::statistics& since_fork, const process_usage& used,
                                                int deadline_ms) FAR_REQUIRES(lock_);
  void fill_slot(std::size_t index) noexcept FAR_REQUIRES(lock_);
  void resume_slot(std::size_t index) noexcept FAR_REQUIRES(lock_);
  void decide(bool at_once) noexcept FAR_REQUIRES(lock_);
  void bury_the_dead() noexcept FAR_REQUIRES(lock_);
  [[nodiscard]] bool is_last() const noexcept FAR_REQUIRES(lock_);
  void follow_machine(std::uint64_t now_ns) noexcept FAR_REQUIRES(lock_);
  void observe(job_slot& slot, double seconds) noexcept;
  void warn_of_minima(std::uint64_t used_bytes, std::size_t processes) noexcept;

  const job_name name_;
  job_region& region_;         // stays in its place when the mapping gets another file
  mutable spin_lock lock_;     // between threads of this process, for which the locks of the file are one
  std::atomic<pid_t> pid_{0};  // the process that joined; 0: none
  job_mapping mapping_ FAR_GUARDED_BY(lock_);
  std::size_t slot_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t owner_ FAR_GUARDED_BY(lock_) = 0;
  bool left_ FAR_GUARDED_BY(lock_) = false;
  bool published_last_ FAR_GUARDED_BY(lock_) = false;
  // The machine as this process saw it last; 0 ns: never.
  std::uint64_t looked_ns_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t seen_stalled_us_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t seen_failures_ FAR_GUARDED_BY(lock_) = 0;
  // The counts of this process before exec, from which it continues.
  engine::statistics before_ FAR_GUARDED_BY(lock_);
};

}  // namespace far::preload
