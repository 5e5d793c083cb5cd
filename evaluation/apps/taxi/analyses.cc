#include "analyses.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "apps/hints.h"
#include "calendar.h"
#include "distance.h"

namespace taxi {

namespace {

// Moves values. The mean of the two in the middle when their number is even. Requires one.
double median(std::span<std::int32_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (static_cast<double>(*middle) + *std::max_element(values.begin(), middle)) / 2;
}

// For each key below 32 that occurs: the median duration of the trips for whose pick-up key_of gives it.
template <typename Key>
medians median_durations(const trips& table, const Key& key_of) {
  constexpr std::size_t keys = 32;
  std::array<std::size_t, keys + 1> starts = {};
  for (std::size_t i = 0; i < table.rows(); ++i) {
    far_hint(&table.pickup[i], .read_ahead = 64, .sequential = true);
    ++starts[key_of(table.pickup[i]) + 1];
  }
  for (std::size_t key = 0; key < keys; ++key) starts[key + 1] += starts[key];

  // The durations of each key together. Each key appends to a stream of its own.
  const auto grouped = std::make_unique_for_overwrite<std::int32_t[]>(table.rows());
  std::array<std::size_t, keys> ends;
  std::copy_n(starts.begin(), keys, ends.begin());
  for (std::size_t i = 0; i < table.rows(); ++i) {
    far_hint(&table.pickup[i], .read_ahead = 64, .sequential = true);
    far_hint(&table.duration_s[i], .read_ahead = 64, .sequential = true);
    grouped[ends[key_of(table.pickup[i])]++] = table.duration_s[i];
  }

  medians found;
  for (std::size_t key = 0; key < keys; ++key) {
    const std::span<std::int32_t> values(grouped.get() + starts[key], ends[key] - starts[key]);
    if (!values.empty()) found[static_cast<unsigned>(key)] = median(values);
  }
  return found;
}

}  // namespace

counts count_vendors(const trips& table) {
  std::array<std::uint64_t, 256> trips_of = {};
  for (std::size_t i = 0; i < table.rows(); ++i) {
    far_hint(&table.vendor[i], .read_ahead = 64, .sequential = true);
    ++trips_of[table.vendor[i]];
  }
  return present(trips_of);
}

std::map<unsigned, counts> count_passengers(const trips& table) {
  std::array<std::array<std::uint64_t, 256>, 256> trips_of = {};  // by vendor and passengers
  for (std::size_t i = 0; i < table.rows(); ++i) {
    far_hint(&table.vendor[i], .read_ahead = 64, .sequential = true);
    far_hint(&table.passengers[i], .read_ahead = 64, .sequential = true);
    ++trips_of[table.vendor[i]][table.passengers[i]];
  }
  std::map<unsigned, counts> found;
  for (unsigned vendor = 0; vendor < trips_of.size(); ++vendor) {
    counts of_vendor = present(trips_of[vendor]);
    if (!of_vendor.empty()) found[vendor] = std::move(of_vendor);
  }
  return found;
}

duration_summary summarise_durations(const trips& table) {
  std::int64_t sum = 0;
  std::int64_t shortest = INT64_MAX;
  std::int64_t longest = INT64_MIN;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    far_hint(&table.pickup[i], .read_ahead = 64, .sequential = true);
    far_hint(&table.dropoff[i], .read_ahead = 64, .sequential = true);
    const std::int64_t duration = table.dropoff[i] - table.pickup[i];
    sum += duration;
    shortest = std::min(shortest, duration);
    longest = std::max(longest, duration);
  }
  return {shortest, longest, static_cast<double>(sum) / static_cast<double>(table.rows())};
}

stored_summary summarise_stored(const trips& table) {
  std::uint64_t stored = 0;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    far_hint(&table.stored[i], .read_ahead = 64, .sequential = true);
    stored += table.stored[i];
  }
  return {stored, static_cast<double>(stored) / static_cast<double>(table.rows())};
}

distance_summary measure_distances(const trips& table, std::vector<double>& distances_km) {
  distances_km.clear();
  distances_km.reserve(table.rows());
  distance_summary found = {};
  double sum_km = 0;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    far_hint(&table.pickup_longitude[i], .read_ahead = 64, .sequential = true);
    far_hint(&table.pickup_latitude[i], .read_ahead = 64, .sequential = true);
    far_hint(&table.dropoff_longitude[i], .read_ahead = 64, .sequential = true);
    far_hint(&table.dropoff_latitude[i], .read_ahead = 64, .sequential = true);
    const double km = distance_km(radians(table.pickup_longitude[i]), radians(table.pickup_latitude[i]),
                                  radians(table.dropoff_longitude[i]), radians(table.dropoff_latitude[i]));
    distances_km.push_back(km);
    sum_km += km;
    found.longest_km = std::max(found.longest_km, km);
    if (km > 100) ++found.beyond_100_km;
  }
  found.mean_km = sum_km / static_cast<double>(table.rows());
  return found;
}

pickup_range find_pickup_range(const trips& table) {
  pickup_range found = {INT64_MAX, INT64_MIN};
  for (std::size_t i = 0; i < table.rows(); ++i) {
    far_hint(&table.pickup[i], .read_ahead = 64, .sequential = true);
    found.first = std::min(found.first, table.pickup[i]);
    found.last = std::max(found.last, table.pickup[i]);
  }
  return found;
}

pickup_counts count_pickups(const trips& table) {
  std::array<std::uint64_t, 24> by_hour = {};
  std::array<std::uint64_t, 32> by_day = {};
  std::array<std::uint64_t, 13> by_month = {};
  for (std::size_t i = 0; i < table.rows(); ++i) {
    far_hint(&table.pickup[i], .read_ahead = 64, .sequential = true);
    ++by_hour[hour_of(table.pickup[i])];
    ++by_day[day_of(table.pickup[i])];
    ++by_month[month_of(table.pickup[i])];
  }
  return {present(by_hour), present(by_day), present(by_month)};
}

medians median_durations_by_day(const trips& table) {
  return median_durations(table, day_of);
}

medians median_durations_by_month(const trips& table) {
  return median_durations(table, month_of);
}

}  // namespace taxi
