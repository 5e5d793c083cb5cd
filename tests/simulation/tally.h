// Sums of what many runs came across together.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "simulation.h"

namespace far::simulation {

// One thing that runs come across, for people, and to see that they did come across everything.
struct tally_line {
  const char* name = nullptr;
  std::uint64_t number = 0;
  bool is_rare = false;  // only a long simulation must have come across it
};

[[nodiscard]] const char* name_of(run_options::far_tier world);

// A sum over runs of one world. All zero bytes: of none. In memory that processes share, several may add to it.
class tally {
 public:
  void add(const report& one, run_options::far_tier world);

  [[nodiscard]] std::uint64_t seeds() const { return seeds_.load(); }
  // Prints what the runs came across, a line each. Returns false when there were enough of them to come across
  // everything, and they did not.
  [[nodiscard]] bool print_and_judge() const;
  // Prints one line about all of it.
  void print_summary(const run_options& first, std::uint64_t failures) const;

 private:
  static constexpr std::size_t most_lines = 64;

  std::atomic<std::uint64_t> seeds_;
  std::atomic<std::uint64_t> operations_;
  std::atomic<std::uint64_t> accesses_;
  std::atomic<std::uint64_t> validations_;
  std::atomic<std::uint64_t> digest_;  // a sum, so that it does not matter which run ends first
  // By their place among the lines of the world; the names are those of this program, whichever process adds.
  std::array<std::atomic<std::uint64_t>, most_lines> numbers_;
  std::array<std::atomic<const char*>, most_lines> names_;
  std::array<std::atomic<bool>, most_lines> are_rare_;
};

}  // namespace far::simulation
