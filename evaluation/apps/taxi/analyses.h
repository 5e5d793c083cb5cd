// Nine questions about taxi trips, each answered by scans of a few columns. They are those of the notebook by which
// AIFM (Ruan et al., OSDI 2020, section 8.2) and Eden compare data frames in far memory. Each requires at least one
// trip.
#pragma once

#include <map>
#include <vector>

#include "results.h"
#include "trips.h"

namespace taxi {

// 1. Trips of each vendor.
counts count_vendors(const trips& table);

// 2. For each vendor: trips by number of passengers.
std::map<unsigned, counts> count_passengers(const trips& table);

// 3. Trip durations, from the two times of each trip, in seconds.
duration_summary summarise_durations(const trips& table);

// 4. Trips that were stored in the car and forwarded later.
stored_summary summarise_stored(const trips& table);

// 5. Great-circle distance of each trip, written to `distances_km`.
distance_summary measure_distances(const trips& table, std::vector<double>& distances_km);

// 6. The first and the last pick-up.
pickup_range find_pickup_range(const trips& table);

// 7. Pick-ups by hour (0 to 23), day of the month (1 to 31) and month (1 to 12).
pickup_counts count_pickups(const trips& table);

// 8. and 9. Median of the column of durations, in seconds, by day of the month and by month of the pick-up.
medians median_durations_by_day(const trips& table);
medians median_durations_by_month(const trips& table);

}  // namespace taxi
