// The nine questions of apps/taxi/analyses.h about a far::dataframe, with the same answers. Each requires a trip.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/taxi/results.h"
#include "far/dataframe.h"

namespace analytics {

// The trips of this seed. vendor, passengers and duration_s are int64, pickup and dropoff times, the coordinates
// float64, stored boolean.
[[nodiscard]] far::dataframe generate_trips(far::runtime& in, std::size_t rows, std::uint64_t seed);

[[nodiscard]] taxi::counts count_vendors(const far::dataframe& trips);
[[nodiscard]] std::map<unsigned, taxi::counts> count_passengers(const far::dataframe& trips);
// Adds the column seconds.
[[nodiscard]] taxi::duration_summary summarise_durations(far::dataframe& trips);
[[nodiscard]] taxi::stored_summary summarise_stored(const far::dataframe& trips);
// Adds the column km. Its mean differs from that of apps/taxi in the last digits: the kilometres are added in another
// order.
[[nodiscard]] taxi::distance_summary measure_distances(far::dataframe& trips);
[[nodiscard]] taxi::pickup_range find_pickup_range(const far::dataframe& trips);
// Adds the columns hour, day and month, of which the next two use those of the day and the month.
[[nodiscard]] taxi::pickup_counts count_pickups(far::dataframe& trips);
[[nodiscard]] taxi::medians median_durations_by_day(const far::dataframe& trips);
[[nodiscard]] taxi::medians median_durations_by_month(const far::dataframe& trips);

}  // namespace analytics
