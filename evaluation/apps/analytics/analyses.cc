#include "analyses.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "apps/taxi/calendar.h"
#include "apps/taxi/distance.h"

namespace analytics {
namespace {

template <typename T>
using rows = std::span<const T>;

// Moves values. The mean of the two in the middle when their number is even. Requires one.
double median(column<std::int32_t>& values) {
  const memory::scope here(values.home().home());
  const auto all = values.range_mut(here);
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  if (values.size() % 2 == 1) return *middle;
  return (static_cast<double>(*middle) + *std::max_element(all.begin(), middle)) / 2;
}

// For each key below 32 that occurs: the median duration of the trips for whose pick-up key_of gives it.
template <typename Key>
taxi::medians median_durations(const table& trips, const Key& key_of) {
  constexpr std::size_t keys = 32;
  std::vector<column<std::int32_t>> grouped;
  for (std::size_t key = 0; key < keys; ++key) grouped.emplace_back(trips.duration_s.home());
  std::array<std::vector<std::int32_t>, keys> coming;
  const auto add = [&](rows<taxi::local_seconds> pickup, rows<std::int32_t> duration_s) {
    for (std::size_t i = 0; i < pickup.size(); ++i) coming[key_of(pickup[i])].push_back(duration_s[i]);
    for (std::size_t key = 0; key < keys; ++key) {
      grouped[key].append(coming[key]);
      coming[key].clear();
    }
  };
  scan(add, trips.pickup, trips.duration_s);

  taxi::medians found;
  for (std::size_t key = 0; key < keys; ++key) {
    if (!grouped[key].empty()) found[static_cast<unsigned>(key)] = median(grouped[key]);
  }
  return found;
}

}  // namespace

taxi::counts count_vendors(const table& trips) {
  std::array<std::uint64_t, 256> trips_of = {};
  const auto count = [&](rows<std::uint8_t> vendors) {
    for (const std::uint8_t vendor : vendors) ++trips_of[vendor];
  };
  scan(count, trips.vendor);
  return taxi::present(trips_of);
}

std::map<unsigned, taxi::counts> count_passengers(const table& trips) {
  std::vector<std::array<std::uint64_t, 256>> trips_of(256);  // by vendor and passengers
  const auto count = [&](rows<std::uint8_t> vendors, rows<std::uint8_t> passengers) {
    for (std::size_t i = 0; i < vendors.size(); ++i) ++trips_of[vendors[i]][passengers[i]];
  };
  scan(count, trips.vendor, trips.passengers);
  std::map<unsigned, taxi::counts> found;
  for (unsigned vendor = 0; vendor < trips_of.size(); ++vendor) {
    taxi::counts of_vendor = taxi::present(trips_of[vendor]);
    if (!of_vendor.empty()) found[vendor] = std::move(of_vendor);
  }
  return found;
}

taxi::duration_summary summarise_durations(const table& trips) {
  std::int64_t sum = 0;
  std::int64_t shortest = INT64_MAX;
  std::int64_t longest = INT64_MIN;
  const auto add = [&](rows<taxi::local_seconds> pickup, rows<taxi::local_seconds> dropoff) {
    for (std::size_t i = 0; i < pickup.size(); ++i) {
      const std::int64_t duration = dropoff[i] - pickup[i];
      sum += duration;
      shortest = std::min(shortest, duration);
      longest = std::max(longest, duration);
    }
  };
  scan(add, trips.pickup, trips.dropoff);
  return {shortest, longest, static_cast<double>(sum) / static_cast<double>(trips.rows())};
}

taxi::stored_summary summarise_stored(const table& trips) {
  std::uint64_t stored = 0;
  const auto add = [&](rows<std::uint8_t> all) {
    for (const std::uint8_t one : all) stored += one;
  };
  scan(add, trips.stored);
  return {stored, static_cast<double>(stored) / static_cast<double>(trips.rows())};
}

taxi::distance_summary measure_distances(const table& trips, column<double>& distances_km) {
  taxi::distance_summary found = {};
  double sum_km = 0;
  std::vector<double> fresh;
  const auto measure = [&](rows<double> from_longitude, rows<double> from_latitude, rows<double> to_longitude,
                           rows<double> to_latitude) {
    fresh.clear();
    for (std::size_t i = 0; i < from_longitude.size(); ++i) {
      const double km = taxi::distance_km(taxi::radians(from_longitude[i]), taxi::radians(from_latitude[i]),
                                          taxi::radians(to_longitude[i]), taxi::radians(to_latitude[i]));
      fresh.push_back(km);
      sum_km += km;
      found.longest_km = std::max(found.longest_km, km);
      if (km > 100) ++found.beyond_100_km;
    }
    distances_km.append(fresh);
  };
  distances_km.clear();
  scan(measure, trips.pickup_longitude, trips.pickup_latitude, trips.dropoff_longitude, trips.dropoff_latitude);
  found.mean_km = sum_km / static_cast<double>(trips.rows());
  return found;
}

taxi::pickup_range find_pickup_range(const table& trips) {
  taxi::pickup_range found = {INT64_MAX, INT64_MIN};
  const auto look = [&](rows<taxi::local_seconds> pickups) {
    for (const taxi::local_seconds pickup : pickups) {
      found.first = std::min(found.first, pickup);
      found.last = std::max(found.last, pickup);
    }
  };
  scan(look, trips.pickup);
  return found;
}

taxi::pickup_counts count_pickups(const table& trips) {
  std::array<std::uint64_t, 24> by_hour = {};
  std::array<std::uint64_t, 32> by_day = {};
  std::array<std::uint64_t, 13> by_month = {};
  const auto count = [&](rows<taxi::local_seconds> pickups) {
    for (const taxi::local_seconds pickup : pickups) {
      ++by_hour[taxi::hour_of(pickup)];
      ++by_day[taxi::day_of(pickup)];
      ++by_month[taxi::month_of(pickup)];
    }
  };
  scan(count, trips.pickup);
  return {taxi::present(by_hour), taxi::present(by_day), taxi::present(by_month)};
}

taxi::medians median_durations_by_day(const table& trips) {
  return median_durations(trips, taxi::day_of);
}

taxi::medians median_durations_by_month(const table& trips) {
  return median_durations(trips, taxi::month_of);
}

}  // namespace analytics
