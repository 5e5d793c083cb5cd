#include "preload/default_tier.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/units.h"

namespace far::preload {
namespace {

// What stays available to other programs: as with an automatic budget (pressure_budget.h).
constexpr std::uint64_t reserve_share = 8;
constexpr std::uint64_t most_reserve_bytes = 4 * gib;

// Below this, a tier of its own is not worth its tables.
constexpr std::uint64_t least_compressed_bytes = 16 * mib;

std::string with_unit(std::uint64_t bytes) {
  return std::to_string(bytes / mib) + "M";
}

}  // namespace

std::string default_far_uri_for(const tier_circumstances& here) {
  if (here.files_in_ram) return "zmem:";  // nothing is gained by going on to there
  const platform::system_memory& memory = here.memory;
  const std::uint64_t reserve_bytes = std::min(memory.usable_bytes() / reserve_share, most_reserve_bytes);
  const std::uint64_t taken_bytes = here.budget_bytes + reserve_bytes;
  const std::uint64_t spare_bytes = memory.available_bytes - std::min(memory.available_bytes, taken_bytes);
  const std::uint64_t compressed_bytes = spare_bytes / 2;
  if (compressed_bytes < least_compressed_bytes || here.data_is_limited) return "file:";
  return "zmem:" + with_unit(compressed_bytes) + "?leave=" + with_unit(reserve_bytes) + ",file:";
}

std::string default_far_uri_under_limit(const tier_circumstances& here) {
  tier_circumstances limited = here;
  limited.data_is_limited = true;
  return default_far_uri_for(limited);
}

bool data_is_limited() {
  rlimit data{};
  return getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur != RLIM_INFINITY;
}

}  // namespace far::preload
