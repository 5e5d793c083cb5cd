// The nine questions of apps/taxi/analyses.h, for columns in containers, with the same answers. Each requires a trip.
#pragma once

#include "apps/taxi/results.h"
#include "table.h"

namespace analytics {

[[nodiscard]] taxi::counts count_vendors(const table& trips);
[[nodiscard]] std::map<unsigned, taxi::counts> count_passengers(const table& trips);
[[nodiscard]] taxi::duration_summary summarise_durations(const table& trips);
[[nodiscard]] taxi::stored_summary summarise_stored(const table& trips);
// Writes a column.
[[nodiscard]] taxi::distance_summary measure_distances(const table& trips, column<double>& distances_km);
[[nodiscard]] taxi::pickup_range find_pickup_range(const table& trips);
[[nodiscard]] taxi::pickup_counts count_pickups(const table& trips);
[[nodiscard]] taxi::medians median_durations_by_day(const table& trips);
[[nodiscard]] taxi::medians median_durations_by_month(const table& trips);

}  // namespace analytics
