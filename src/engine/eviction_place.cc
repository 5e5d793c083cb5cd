#include "engine/eviction_place.h"

namespace far::engine {

// Returns whether the batch counts.
bool eviction_places::count_trial_batch() {
  unsigned left = trial_batches_.load(std::memory_order_relaxed);
  while (left > 0 && !trial_batches_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
  }
  return left > 0 && left <= trial_batches - settling_batches;
}

void eviction_places::note(eviction_place place, std::uint64_t elapsed_ns, std::uint64_t pages) {
  if (!measures_) return;
  const bool on_trial = place != preferred_.load(std::memory_order_relaxed);
  if (on_trial && !count_trial_batch()) return;
  std::atomic<std::uint64_t>& average = cost_[static_cast<unsigned>(place)];
  const std::uint64_t sample = elapsed_ns * 1000 / pages;
  const std::uint64_t before = average.load(std::memory_order_relaxed);
  const std::uint64_t weight = on_trial ? weight_on_trial : weight_in_use;
  average.store(before == 0 ? sample : (before * (weight - 1) + sample) / weight, std::memory_order_relaxed);

  const unsigned batches = on_trial ? 0 : batches_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (batches % batches_between_trials == batches_between_trials / 2) {
    trial_batches_.store(trial_batches, std::memory_order_relaxed);
  }
  // Decided between trials only, so that a trial is not cut short by its own first sample.
  if (on_trial && trial_batches_.load(std::memory_order_relaxed) > 0) return;
  const std::uint64_t background = cost_[static_cast<unsigned>(eviction_place::background)].load();
  const std::uint64_t at_miss = cost_[static_cast<unsigned>(eviction_place::at_miss)].load();
  if (background == 0 || at_miss == 0) return;
  preferred_.store(background > 2 * at_miss ? eviction_place::at_miss : eviction_place::background);
}

}  // namespace far::engine
