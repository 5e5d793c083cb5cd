#include "table_analyses.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/taxi/calendar.h"
#include "apps/taxi/distance.h"
#include "apps/taxi/generator.h"

namespace analytics {
namespace {

using far::column_type;

std::int64_t integer(const far::cell& value) {
  return std::get<std::int64_t>(value);
}

// Of a column of small integers.
taxi::counts counts_of(const far::column& values) {
  taxi::counts found;
  for (const auto& [value, times] : values.counts()) found[static_cast<unsigned>(integer(value))] = times;
  return found;
}

taxi::medians median_durations(const far::dataframe& trips, const std::string& by) {
  const far::dataframe grouped = trips.group_by({by}, {{"duration_s", far::aggregate::median}});
  taxi::medians found;
  for (std::size_t row = 0; row < grouped.rows(); ++row) {
    const auto key = static_cast<unsigned>(integer(grouped[by].at(row)));
    found[key] = std::get<double>(grouped["duration_s_median"].at(row));
  }
  return found;
}

// Appends a field of some trips to a column of T.
template <typename T, typename Field>
void append(std::span<const taxi::trip> trips, Field taxi::trip::* field, far::column& to) {
  std::vector<T> numbers;
  numbers.reserve(trips.size());
  for (const taxi::trip& one : trips) numbers.push_back(static_cast<T>(one.*field));
  to.append_numbers(std::span<const T>(numbers));
}

}  // namespace

far::dataframe generate_trips(far::runtime& in, std::size_t rows, std::uint64_t seed) {
  constexpr std::size_t rows_at_a_time = 8192;
  far::column vendor(in, column_type::int64);
  far::column pickup(in, column_type::time);
  far::column dropoff(in, column_type::time);
  far::column passengers(in, column_type::int64);
  std::vector<far::column> places;
  for (int i = 0; i < 4; ++i) places.emplace_back(in, column_type::float64);
  far::column stored(in, column_type::boolean);
  far::column duration_s(in, column_type::int64);
  taxi::trip_generator generator(seed);
  std::vector<taxi::trip> some;
  while (vendor.size() < rows) {
    some.clear();
    while (some.size() < std::min(rows_at_a_time, rows - vendor.size())) some.push_back(generator.next());
    append<std::int64_t>(some, &taxi::trip::vendor, vendor);
    append<std::int64_t>(some, &taxi::trip::pickup, pickup);
    append<std::int64_t>(some, &taxi::trip::dropoff, dropoff);
    append<std::int64_t>(some, &taxi::trip::passengers, passengers);
    append<double>(some, &taxi::trip::pickup_longitude, places[0]);
    append<double>(some, &taxi::trip::pickup_latitude, places[1]);
    append<double>(some, &taxi::trip::dropoff_longitude, places[2]);
    append<double>(some, &taxi::trip::dropoff_latitude, places[3]);
    append<std::uint8_t>(some, &taxi::trip::stored, stored);
    append<std::int64_t>(some, &taxi::trip::duration_s, duration_s);
  }
  far::dataframe trips(in);
  trips.add("vendor", std::move(vendor));
  trips.add("pickup", std::move(pickup));
  trips.add("dropoff", std::move(dropoff));
  trips.add("passengers", std::move(passengers));
  trips.add("pickup_longitude", std::move(places[0]));
  trips.add("pickup_latitude", std::move(places[1]));
  trips.add("dropoff_longitude", std::move(places[2]));
  trips.add("dropoff_latitude", std::move(places[3]));
  trips.add("stored", std::move(stored));
  trips.add("duration_s", std::move(duration_s));
  return trips;
}

taxi::counts count_vendors(const far::dataframe& trips) {
  return counts_of(trips["vendor"]);
}

std::map<unsigned, taxi::counts> count_passengers(const far::dataframe& trips) {
  const far::dataframe grouped = trips.group_by({"vendor", "passengers"}, {{"passengers", far::aggregate::count}});
  std::map<unsigned, taxi::counts> found;
  for (std::size_t row = 0; row < grouped.rows(); ++row) {
    const auto vendor = static_cast<unsigned>(integer(grouped["vendor"].at(row)));
    const auto passengers = static_cast<unsigned>(integer(grouped["passengers"].at(row)));
    found[vendor][passengers] = static_cast<std::uint64_t>(integer(grouped["passengers_count"].at(row)));
  }
  return found;
}

taxi::duration_summary summarise_durations(far::dataframe& trips) {
  const far::column& seconds = trips.derive<std::int64_t, std::int64_t>(
      "seconds", {"pickup", "dropoff"}, [](std::int64_t pickup, std::int64_t dropoff) { return dropoff - pickup; });
  return {integer(seconds.min()), integer(seconds.max()), seconds.mean().value()};
}

taxi::stored_summary summarise_stored(const far::dataframe& trips) {
  const std::size_t stored = trips["stored"].count_between(true, true);
  return {stored, static_cast<double>(stored) / static_cast<double>(trips.rows())};
}

taxi::distance_summary measure_distances(far::dataframe& trips) {
  const far::column& km = trips.derive<double, double, double, double>(
      "km", {"pickup_longitude", "pickup_latitude", "dropoff_longitude", "dropoff_latitude"},
      [](double longitude, double latitude, double other_longitude, double other_latitude) {
        return taxi::distance_km(taxi::radians(longitude), taxi::radians(latitude), taxi::radians(other_longitude),
                                 taxi::radians(other_latitude));
      });
  const double above_100 = std::nextafter(100.0, std::numeric_limits<double>::infinity());
  return {std::get<double>(km.max()), km.mean().value(), km.count_between(above_100, far::null)};
}

taxi::pickup_range find_pickup_range(const far::dataframe& trips) {
  const far::column& pickup = trips["pickup"];
  return {std::get<far::timestamp>(pickup.min()).seconds, std::get<far::timestamp>(pickup.max()).seconds};
}

taxi::pickup_counts count_pickups(far::dataframe& trips) {
  trips.derive_together<std::int64_t>({"hour", "day", "month"}, {"pickup"}, [](std::int64_t pickup) {
    const std::chrono::year_month_day date = taxi::date_of(pickup);
    return std::tuple(std::int64_t{taxi::hour_of(pickup)}, std::int64_t{unsigned{date.day()}},
                      std::int64_t{unsigned{date.month()}});
  });
  return {counts_of(trips["hour"]), counts_of(trips["day"]), counts_of(trips["month"])};
}

taxi::medians median_durations_by_day(const far::dataframe& trips) {
  return median_durations(trips, "day");
}

taxi::medians median_durations_by_month(const far::dataframe& trips) {
  return median_durations(trips, "month");
}

}  // namespace analytics
