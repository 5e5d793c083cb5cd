// Where eviction happens: in the background, ahead of need, or in the thread that misses, which stands still anyway.
//
// In the background it takes no time from a miss, but it unmaps pages beside running threads, and each call that does
// so interrupts their processors: in a virtual machine 10 to 25 us a call (docs/decisions/0001). A program with one
// thread has nothing to interrupt while that thread misses. So both places are measured, and eviction leaves the
// background only if it costs more than twice as much a page there.
#pragma once

#include <atomic>
#include <cstdint>

namespace far::engine {

enum class eviction_place : std::uint8_t { background, at_miss };

class eviction_places {
 public:
  // `always`: the place to evict, unless `measures` is set; then it is only the first one.
  eviction_places(eviction_place always, bool measures) : preferred_(always), measures_(measures) {}

  // Where the next batch is to be evicted. Now and then the other place, to measure it.
  [[nodiscard]] eviction_place next() const {
    const eviction_place preferred = preferred_.load(std::memory_order_relaxed);
    if (trial_batches_.load(std::memory_order_relaxed) == 0) return preferred;
    return preferred == eviction_place::background ? eviction_place::at_miss : eviction_place::background;
  }

  // Whether the other place may be used when that seems good.
  [[nodiscard]] bool free_to_choose() const { return measures_; }

  // A batch of `pages` was evicted at `place` in `elapsed_ns`. Requires: pages > 0.
  void note(eviction_place place, std::uint64_t elapsed_ns, std::uint64_t pages);

 private:
  [[nodiscard]] bool count_trial_batch();

  static constexpr unsigned batches_between_trials = 256;
  static constexpr unsigned trial_batches = 6;
  static constexpr unsigned settling_batches = 3;  // of a trial, not counted: the other place's thread comes to rest
  // The weight of the past in the moving averages: for the place in use, and for the one that is only tried now and
  // then.
  static constexpr std::uint64_t weight_in_use = 8;
  static constexpr std::uint64_t weight_on_trial = 2;

  std::atomic<eviction_place> preferred_;
  const bool measures_;
  std::atomic<unsigned> trial_batches_{0};  // how many the other place still gets
  std::atomic<unsigned> batches_{0};
  // Picoseconds a page; 0: not measured yet. Two evictors may lose one another's sample: it is an average.
  std::atomic<std::uint64_t> cost_[2] = {0, 0};
};

}  // namespace far::engine
