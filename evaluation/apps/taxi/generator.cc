#include "generator.h"

namespace taxi {

namespace {

constexpr local_seconds year_2016 = 1451606400;
constexpr local_seconds day_s = 24 * 60 * 60;
constexpr double days = 182;  // January to June, as in the data set

// Between -1 and 1, and more often near 0.
double around_zero(apps::random_words& random) {
  return random.next_unit() + random.next_unit() - 1;
}

// The data set has coordinates of 32 bits, written with all digits.
double coordinate(double degrees) {
  return static_cast<double>(static_cast<float>(degrees));
}

}  // namespace

trip trip_generator::next() {
  apps::random_words& random = random_;
  trip row = {};
  row.id = ++last_id_;
  row.vendor = random.next_unit() < 0.46 ? 1 : 2;
  const auto day = static_cast<local_seconds>(random.next_unit() * days);
  // Half of the trips are more likely towards the evening, so that the hours differ.
  const double clock = (random.next_unit() + random.next_unit()) / 2 * 0.6 + random.next_unit() * 0.4;
  row.pickup = year_2016 + day * day_s + static_cast<local_seconds>(clock * day_s);
  // Most are minutes; a few are meters that were left on.
  const double minutes = random.next_unit() * random.next_unit() * 60;
  row.duration_s = 1 + static_cast<std::int32_t>(random.next_unit() < 0.001 ? minutes * 1400 : minutes * 60);
  row.dropoff = row.pickup + row.duration_s;
  const double party = random.next_unit();
  row.passengers = static_cast<std::uint8_t>(party < 0.7 ? 1 : (party - 0.7) * 20 + 1);
  if (party > 0.9999) row.passengers = 0;
  row.pickup_longitude = coordinate(-73.975 + around_zero(random) * 0.1);
  row.pickup_latitude = coordinate(40.75 + around_zero(random) * 0.08);
  // A few leave the town, or the receiver has lost its way.
  const double reach = random.next_unit() < 0.002 ? 30 : 0.5;
  row.dropoff_longitude = coordinate(row.pickup_longitude + around_zero(random) * 0.1 * reach);
  row.dropoff_latitude = coordinate(row.pickup_latitude + around_zero(random) * 0.08 * reach);
  row.stored = random.next_unit() < 0.0055;
  return row;
}

trips generate(std::size_t rows, std::uint64_t seed) {
  trips table;
  table.for_each_column([rows](auto& column) { column.reserve(rows); });
  trip_generator generator(seed);
  for (std::size_t i = 0; i < rows; ++i) table.add(generator.next());
  return table;
}

}  // namespace taxi
