// Trips as text, in the columns of the public data set: id, vendor_id, pickup_datetime, dropoff_datetime,
// passenger_count, pickup_longitude, pickup_latitude, dropoff_longitude, dropoff_latitude, store_and_fwd_flag,
// trip_duration.
#pragma once

#include <iosfwd>
#include <stdexcept>
#include <string>

#include "trips.h"

namespace taxi {

// Says what is wrong, in which file and line, and what to do.
class csv_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Every line of `input`; `name` stands in messages. Throws csv_error.
trips read_csv(std::istream& input, const std::string& name);
trips read_csv_file(const std::string& path);

// Writes text that read_csv reads back bit for bit.
void write_csv(const trips& table, std::ostream& output);
void write_csv_file(const trips& table, const std::string& path);

}  // namespace taxi
