// Seeds, one after another, until a time is over. A run that fails ends its process, so they run in processes of their
// own, and the campaign goes on with the next seed.
#pragma once

#include <cstdint>
#include <functional>

#include "simulation.h"
#include "tally.h"

namespace far::simulation {

struct campaign_options {
  run_options first;
  std::uint64_t most_seeds = 0;
  std::uint64_t seconds = 0;
  std::uint64_t jobs = 1;  // processes at a time
};

// Runs `run_one` for each seed, and adds what it returns to `sum`, which lies in shared memory. Returns how many seeds
// failed; after many failures it ends early.
[[nodiscard]] std::uint64_t run_campaign(const campaign_options& chosen, tally& sum,
                                         const std::function<report(const run_options&)>& run_one);

// Zero bytes that the processes of a campaign share; never unmapped.
[[nodiscard]] tally& make_shared_tally();

}  // namespace far::simulation
