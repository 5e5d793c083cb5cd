// The time, counted in evictions: an eighth of the budget evicted is one epoch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/budget.h"
#include "engine/counters.h"
#include "engine/residency.h"

namespace far::engine {

class eviction_clock {
 public:
  static constexpr unsigned epochs_a_budget = 8;

  // Requires: both outlive the clock.
  eviction_clock(const budget& local, const counters& count) : local_(local), count_(count) {}

  [[nodiscard]] unsigned epoch() const {
    const std::uint64_t pages_an_epoch = std::max<std::uint64_t>(1, local_.limit_pages() / epochs_a_budget);
    return static_cast<unsigned>(count_.evicted_pages.get() / pages_an_epoch % page_word::epochs);
  }
  [[nodiscard]] unsigned epochs_since(unsigned then) const { return (epoch() - then) % page_word::epochs; }

 private:
  const budget& local_;
  const counters& count_;
};

}  // namespace far::engine
