// Taxi trips in columns, each a vector that may be far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/containers.h"
#include "apps/taxi/trips.h"

namespace analytics {

template <typename T>
using column = memory::vector<T>;

struct table {
  explicit table(const memory::tag& in)
      : id(in),
        vendor(in),
        pickup(in),
        dropoff(in),
        passengers(in),
        pickup_longitude(in),
        pickup_latitude(in),
        dropoff_longitude(in),
        dropoff_latitude(in),
        stored(in),
        duration_s(in) {}

  [[nodiscard]] std::size_t rows() const { return id.size(); }

  void append(std::span<const taxi::trip> trips) {
    append(trips, &taxi::trip::id, id);
    append(trips, &taxi::trip::vendor, vendor);
    append(trips, &taxi::trip::pickup, pickup);
    append(trips, &taxi::trip::dropoff, dropoff);
    append(trips, &taxi::trip::passengers, passengers);
    append(trips, &taxi::trip::pickup_longitude, pickup_longitude);
    append(trips, &taxi::trip::pickup_latitude, pickup_latitude);
    append(trips, &taxi::trip::dropoff_longitude, dropoff_longitude);
    append(trips, &taxi::trip::dropoff_latitude, dropoff_latitude);
    append(trips, &taxi::trip::stored, stored);
    append(trips, &taxi::trip::duration_s, duration_s);
  }

  column<std::uint64_t> id;
  column<std::uint8_t> vendor;
  column<taxi::local_seconds> pickup;
  column<taxi::local_seconds> dropoff;
  column<std::uint8_t> passengers;
  column<double> pickup_longitude;
  column<double> pickup_latitude;
  column<double> dropoff_longitude;
  column<double> dropoff_latitude;
  column<std::uint8_t> stored;  // 0 or 1
  column<std::int32_t> duration_s;

 private:
  template <typename Field, typename T>
  static void append(std::span<const taxi::trip> trips, Field taxi::trip::* field, column<T>& to) {
    to.append(std::views::transform(trips, field));
  }
};

// Rows that a scope holds: 64 KiB of the widest columns, a chunk of them, and a part of a chunk of the others.
inline constexpr std::size_t rows_a_scope = 8192;

// Calls visit(a span of each column) for the same rows of all, in order. Those ahead are brought in meanwhile.
template <typename Visit, typename First, typename... Others>
void scan(const Visit& visit, const First& first, const Others&... others) {
  for (std::size_t row = 0; row < first.size(); row += rows_a_scope) {
    const memory::scope here(first.home().home());
    visit(first.chunk(here, row, rows_a_scope), others.chunk(here, row, rows_a_scope)...);
  }
}

}  // namespace analytics
