// The counters of a scheduler since its start.
#pragma once

#include <atomic>
#include <cstdint>

namespace far::fiber {

struct statistics {
  std::uint64_t spawned = 0;
  std::uint64_t ended = 0;
  std::uint64_t switches = 0;     // from a fiber to another, or to its worker
  std::uint64_t parks = 0;        // waits that left the fiber
  std::uint64_t fault_parks = 0;  // of these, inside a fault handler
  std::uint64_t stolen = 0;       // fibers that an idle worker took from another
  std::uint64_t turns_given =
      0;                        // fibers run before one of higher priority, because they had been passed over too often
  std::uint64_t polls = 0;      // calls of pollers
  std::uint64_t deadlines = 0;  // waits that ended by their deadline, or sleeps that ended
  std::uint64_t sleeps = 0;     // times a worker slept
  std::uint64_t roused = 0;     // times a sleeping worker was woken for a ready fiber
  std::uint64_t blocking_calls = 0;  // handed to helper threads
  std::uint64_t helpers = 0;         // helper threads started
  std::uint64_t stack_bytes = 0;     // address space mapped for stacks
};

// A counter with one writer: no atomic read-modify-write.
class counter {
 public:
  void add(std::uint64_t more) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// The counters of a worker.
struct worker_counts {
  counter switches;
  counter parks;
  counter fault_parks;
  counter ended;
  counter stolen;
  counter polls;
  counter deadlines;
  counter sleeps;
};

}  // namespace far::fiber
