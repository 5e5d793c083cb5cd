// The engine's counters: relaxed atomics that any thread bumps, read together into `statistics`.
#pragma once

#include <atomic>
#include <cstdint>

namespace far::engine {

class counter {
 public:
  void add(std::uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  void raise_to(std::uint64_t value) {
    std::uint64_t current = value_.load(std::memory_order_relaxed);
    while (value > current && !value_.compare_exchange_weak(current, value, std::memory_order_relaxed)) {
    }
  }
  void begin_again() { value_.store(0, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// The meaning of each is that of the field of the same name in `statistics`. The two groups are bumped by different
// threads and kept on different cache lines.
struct counters {
  alignas(64) counter misses;
  counter waits;
  counter rescues;
  counter zero_fills;
  counter write_faults;
  counter hinted_misses;
  counter wait_ns;
  counter prefetched_pages;
  counter prefetch_hits;
  counter around_pages;
  counter sampled_pages;
  counter wanted_samples;
  counter returned_along;  // not in `statistics`: pages that came with others, soon after they had left
  counter fetched_pages;
  counter direct_reclaims;

  alignas(64) counter evicted_pages;
  counter clean_evictions;
  counter written_pages;
  counter scrubbed_pages;
  counter backend_errors;
  counter over_budget_pages;
  counter lost_pages;
  counter peak_far_pages;
  counter peak_far_stored_bytes;

  // In the child of a fork, which has done nothing yet.
  void begin_again() {
    for (counter* counter : {&misses,
                             &waits,
                             &rescues,
                             &zero_fills,
                             &write_faults,
                             &hinted_misses,
                             &wait_ns,
                             &prefetched_pages,
                             &prefetch_hits,
                             &around_pages,
                             &sampled_pages,
                             &wanted_samples,
                             &returned_along,
                             &fetched_pages,
                             &direct_reclaims,
                             &evicted_pages,
                             &clean_evictions,
                             &written_pages,
                             &scrubbed_pages,
                             &backend_errors,
                             &over_budget_pages,
                             &lost_pages,
                             &peak_far_pages,
                             &peak_far_stored_bytes}) {
      counter->begin_again();
    }
  }
};

}  // namespace far::engine
