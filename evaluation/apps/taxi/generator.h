// Trips that look somewhat like those of the data set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trips.h"

namespace taxi {

// The same for the same seed on every machine. Requires rows >= 1 for the analyses.
trips generate(std::size_t rows, std::uint64_t seed);

}  // namespace taxi
