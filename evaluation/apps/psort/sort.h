// Parallel sorting by regular sampling (Shi and Schaeffer, "Parallel sorting by regular sampling", 1992, section 2).
#pragma once

#include <cstdint>
#include <vector>

#include "apps/phases.h"

namespace psort {

// Sorts in ascending order, with a second array of the same size. Requires threads >= 1. Adds to `phases`: local_sort,
// sample, pivots, partition, exchange, merge.
void sort(std::vector<std::uint64_t>& values, unsigned threads, apps::phases& phases);

}  // namespace psort
