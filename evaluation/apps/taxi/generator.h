// Trips that look somewhat like those of the data set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/random.h"
#include "trips.h"

namespace taxi {

// One after the other. The same for the same seed on every machine.
class trip_generator {
 public:
  explicit trip_generator(std::uint64_t seed) : random_(apps::mix(seed)) {}

  [[nodiscard]] trip next();

 private:
  apps::random_words random_;
  std::uint64_t last_id_ = 0;
};

// Requires rows >= 1 for the analyses.
trips generate(std::size_t rows, std::uint64_t seed);

}  // namespace taxi
