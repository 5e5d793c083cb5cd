#include "trace/live_allocations.h"

namespace far::trace {
namespace {

// How many starts below the address are looked at: enough for mappings that hold many small ones, bounded all the same.
constexpr int most_steps = 256;

}  // namespace

std::size_t live_allocations::find(std::uint64_t address) const {
  auto candidate = live_.upper_bound(address);
  for (int step = 0; step < most_steps && candidate != live_.begin(); ++step) {
    --candidate;
    if (address - candidate->first < candidate->second.bytes) return candidate->second.number;
  }
  return none;
}

}  // namespace far::trace
