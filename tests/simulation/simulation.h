// One run of the engine in the simulated world, from a seed.
#pragma once

#include <cstdint>

#include "engine/statistics.h"
#include "simulated_cluster.h"

namespace far::simulation {

struct run_options {
  std::uint64_t seed = 1;
  std::uint64_t operations = 100;  // of each thread of the program
  bool replicated = false;         // the far tier is two copies on three servers, of which one at a time is in trouble
};

// What a run came across.
struct report {
  engine::statistics statistics;
  std::uint64_t slices = 0;
  std::uint64_t validations = 0;
  std::uint64_t accesses = 0;
  std::uint64_t moves = 0;
  std::uint64_t lost_pages = 0;
  simulated_cluster::counts servers;  // of a replicated run
  std::uint64_t digest = 0;           // of every choice that was made
};

// Stops the process when anything is wrong.
[[nodiscard]] report run_simulation(const run_options& chosen);

}  // namespace far::simulation
