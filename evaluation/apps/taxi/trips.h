// Taxi trips: one plain vector for each column of the public data set of New York's trips.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace taxi {

// A time of day somewhere, in seconds since 1970 began there.
using local_seconds = std::int64_t;

// One row. The coordinates are in degrees.
struct trip {
  std::uint64_t id;
  std::uint8_t vendor;
  local_seconds pickup;
  local_seconds dropoff;
  std::uint8_t passengers;
  double pickup_longitude;
  double pickup_latitude;
  double dropoff_longitude;
  double dropoff_latitude;
  bool stored;  // in the car, and forwarded later
  std::int32_t duration_s;

  bool operator==(const trip&) const = default;
};

struct trips {
  std::vector<std::uint64_t> id;
  std::vector<std::uint8_t> vendor;
  std::vector<local_seconds> pickup;
  std::vector<local_seconds> dropoff;
  std::vector<std::uint8_t> passengers;
  std::vector<double> pickup_longitude;
  std::vector<double> pickup_latitude;
  std::vector<double> dropoff_longitude;
  std::vector<double> dropoff_latitude;
  std::vector<std::uint8_t> stored;  // 0 or 1
  std::vector<std::int32_t> duration_s;

  std::size_t rows() const { return id.size(); }

  // Calls visit(column) for each column.
  template <typename Visit>
  void for_each_column(const Visit& visit) {
    visit(id);
    visit(vendor);
    visit(pickup);
    visit(dropoff);
    visit(passengers);
    visit(pickup_longitude);
    visit(pickup_latitude);
    visit(dropoff_longitude);
    visit(dropoff_latitude);
    visit(stored);
    visit(duration_s);
  }

  void add(const trip& row) {
    id.push_back(row.id);
    vendor.push_back(row.vendor);
    pickup.push_back(row.pickup);
    dropoff.push_back(row.dropoff);
    passengers.push_back(row.passengers);
    pickup_longitude.push_back(row.pickup_longitude);
    pickup_latitude.push_back(row.pickup_latitude);
    dropoff_longitude.push_back(row.dropoff_longitude);
    dropoff_latitude.push_back(row.dropoff_latitude);
    stored.push_back(row.stored);
    duration_s.push_back(row.duration_s);
  }

  trip row(std::size_t i) const {
    return {.id = id[i],
            .vendor = vendor[i],
            .pickup = pickup[i],
            .dropoff = dropoff[i],
            .passengers = passengers[i],
            .pickup_longitude = pickup_longitude[i],
            .pickup_latitude = pickup_latitude[i],
            .dropoff_longitude = dropoff_longitude[i],
            .dropoff_latitude = dropoff_latitude[i],
            .stored = stored[i] != 0,
            .duration_s = duration_s[i]};
  }
};

}  // namespace taxi
