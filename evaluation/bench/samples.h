// Samples of one measured quantity, and their median, spread and percentiles.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace far::bench {

// A summary of the samples of several runs. All 0 when there was no sample.
struct summary {
  double median = 0;
  double min = 0;
  double max = 0;
  std::size_t count = 0;
};

// The value below which `fraction` (0 to 1) of the samples lie, interpolated between neighbours in sorted order.
// Requires: `sorted` ascends and is not empty.
[[nodiscard]] double percentile_of_sorted(std::span<const double> sorted, double fraction);

// Median, least and greatest, in any order of input.
[[nodiscard]] summary summarise(std::span<const double> samples);

// Percentiles of very many latencies, in nanoseconds: the vector is reordered, not copied.
struct latency_summary {
  double mean_ns = 0;
  double p50_ns = 0;
  double p99_ns = 0;
  double max_ns = 0;
};

// Takes latencies in clock ticks; subtracts what reading the clock costs, never below zero, and turns them into
// nanoseconds. All 0 when there was no sample.
[[nodiscard]] latency_summary summarise_latencies(std::vector<std::uint32_t>& ticks, double nanoseconds_per_tick,
                                                  double overhead_ticks);

}  // namespace far::bench
