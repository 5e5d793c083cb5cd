// One run of the engine in the simulated world, from a seed.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster.h"
#include "engine/statistics.h"

namespace far::simulation {

struct run_options {
  std::uint64_t seed = 1;
  std::uint64_t operations = 100;  // of each thread of the program
  enum class far_tier : std::uint8_t {
    memory,      // one, whose transfers fail
    replicated,  // two copies on three servers, of which one at a time is in trouble; or three on four, and two
    parity,      // two pages and their parity on four servers, of which one at a time is in trouble
    network,     // as replicated, down to the bytes between the clients and the servers of `tcp:`
  };
  far_tier tier = far_tier::memory;
};

// Counts of what a run came across.
struct report {
  engine::statistics statistics;
  std::uint64_t slices = 0;
  std::uint64_t validations = 0;
  std::uint64_t operations = 0;
  std::uint64_t accesses = 0;
  std::uint64_t moves = 0;
  std::uint64_t populates = 0;
  std::uint64_t overwrites = 0;  // of pages that came without their bytes
  std::uint64_t lost_pages = 0;
  std::uint64_t lies = 0;          // transfers that said they succeeded, and returned or kept other bytes
  std::uint64_t drops_behind = 0;  // pages that the program dropped past the engine
  std::uint64_t forks = 0;
  std::uint64_t object_reads = 0;
  std::uint64_t copies_found = 0;       // of lines that such reads brought
  std::uint64_t lost_object_reads = 0;  // the page came in, or went, while it was read
  std::uint64_t answers = 0;            // to questions about parts of pages
  std::uint64_t answers_about_rows = 0;
  std::uint64_t function_calls = 0;
  std::uint64_t function_results = 0;   // of those that were answered
  std::vector<cluster::count> servers;  // of a run with servers
  std::uint64_t digest = 0;             // of every choice that was made
};

// Stops the process when anything is wrong.
[[nodiscard]] report run_simulation(const run_options& chosen);

}  // namespace far::simulation
