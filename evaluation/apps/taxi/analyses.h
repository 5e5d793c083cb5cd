// Nine questions about taxi trips, each answered by scans of a few columns. They are those of the notebook by which
// AIFM (Ruan et al., OSDI 2020, section 8.2) and Eden compare data frames in far memory. Each requires at least one
// trip.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "trips.h"

namespace taxi {

// How often each value occurs; values that do not are absent.
using counts = std::map<unsigned, std::uint64_t>;

// 1. Trips of each vendor.
counts count_vendors(const trips& table);

// 2. For each vendor: trips by number of passengers.
std::map<unsigned, counts> count_passengers(const trips& table);

// 3. Trip durations, from the two times of each trip, in seconds.
struct duration_summary {
  std::int64_t shortest_s;
  std::int64_t longest_s;
  double mean_s;
};
duration_summary summarise_durations(const trips& table);

// 4. Trips that were stored in the car and forwarded later.
struct stored_summary {
  std::uint64_t trips;
  double share;
};
stored_summary summarise_stored(const trips& table);

// 5. Great-circle distance of each trip, written to `distances_km`.
struct distance_summary {
  double longest_km;
  double mean_km;
  std::uint64_t beyond_100_km;
};
distance_summary measure_distances(const trips& table, std::vector<double>& distances_km);

// 6. The first and the last pick-up.
struct pickup_range {
  local_seconds first;
  local_seconds last;
};
pickup_range find_pickup_range(const trips& table);

// 7. Pick-ups by hour (0 to 23), day of the month (1 to 31) and month (1 to 12).
struct pickup_counts {
  counts by_hour;
  counts by_day;
  counts by_month;
};
pickup_counts count_pickups(const trips& table);

// 8. and 9. Median of the column of durations, in seconds, by day of the month and by month of the pick-up.
using medians = std::map<unsigned, double>;
medians median_durations_by_day(const trips& table);
medians median_durations_by_month(const trips& table);

}  // namespace taxi
