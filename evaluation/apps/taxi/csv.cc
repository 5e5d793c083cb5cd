#include "csv.h"

#include <errno.h>
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <istream>
#include <iterator>
#include <ostream>
#include <string_view>

#include "calendar.h"

namespace taxi {

namespace {

constexpr std::string_view header =
    "id,vendor_id,pickup_datetime,dropoff_datetime,passenger_count,pickup_longitude,pickup_latitude,"
    "dropoff_longitude,dropoff_latitude,store_and_fwd_flag,trip_duration";

template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  return code == std::errc() && stop == end && !text.empty();
}

// "2016-03-14 17:24:55"
bool parse_time(std::string_view text, local_seconds& time) {
  constexpr std::string_view pattern = "0000-00-00 00:00:00";
  if (text.size() != pattern.size()) return false;
  for (const std::size_t i : {4, 7, 10, 13, 16}) {
    if (text[i] != pattern[i]) return false;
  }
  unsigned year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  if (!parse_number(text.substr(0, 4), year) || !parse_number(text.substr(5, 2), month) ||
      !parse_number(text.substr(8, 2), day) || !parse_number(text.substr(11, 2), hour) ||
      !parse_number(text.substr(14, 2), minute) || !parse_number(text.substr(17, 2), second)) {
    return false;
  }
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(year)), std::chrono::month(month),
                                         std::chrono::day(day)};
  if (!date.ok() || hour > 23 || minute > 59 || second > 59) return false;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  time = ((days * local_seconds{24} + hour) * 60 + minute) * 60 + second;
  return true;
}

bool parse_id(std::string_view text, std::uint64_t& id) {
  return text.starts_with("id") && parse_number(text.substr(2), id);
}

bool parse_degrees(std::string_view text, double& degrees) {
  return parse_number(text, degrees) && std::isfinite(degrees);
}

bool parse_flag(std::string_view text, bool& flag) {
  flag = text == "Y";
  return flag || text == "N";
}

// The fields of one line, from left to right.
class line_reader {
 public:
  line_reader(std::string_view line, const std::string& name, std::size_t number)
      : rest_(line), names_(header), name_(name), number_(number) {}

  // The next field by parse(text, value). Throws csv_error.
  template <typename Value, typename Parse>
  void read(Value& value, const Parse& parse) {
    const std::string_view column = take(names_);
    if (at_end_) fail(fmt::format("ends before {}", column));
    const std::string_view text = take(rest_);
    if (!parse(text, value)) fail(fmt::format("has '{}' for {}", text, column));
  }

  void expect_end() const {
    if (!at_end_) fail("has more fields than columns");
  }

 private:
  // The text before the next comma, and removes both from `rest`.
  std::string_view take(std::string_view& rest) {
    const std::size_t comma = rest.find(',');
    const std::string_view text = rest.substr(0, comma);
    if (&rest == &rest_) at_end_ = comma == std::string_view::npos;
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    return text;
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw csv_error(fmt::format("{}: line {} {}; correct it, or take the line out", name_, number_, reason));
  }

  std::string_view rest_;
  std::string_view names_;
  const std::string& name_;
  std::size_t number_;
  bool at_end_ = false;
};

trip parse_row(std::string_view line, const std::string& name, std::size_t number) {
  line_reader fields(line, name, number);
  trip row = {};
  fields.read(row.id, parse_id);
  fields.read(row.vendor, parse_number<std::uint8_t>);
  fields.read(row.pickup, parse_time);
  fields.read(row.dropoff, parse_time);
  fields.read(row.passengers, parse_number<std::uint8_t>);
  fields.read(row.pickup_longitude, parse_degrees);
  fields.read(row.pickup_latitude, parse_degrees);
  fields.read(row.dropoff_longitude, parse_degrees);
  fields.read(row.dropoff_latitude, parse_degrees);
  fields.read(row.stored, parse_flag);
  fields.read(row.duration_s, parse_number<std::int32_t>);
  fields.expect_end();
  return row;
}

// The next line, without the end of either convention.
bool read_line(std::istream& input, std::string& line) {
  if (!std::getline(input, line)) return false;
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

}  // namespace

trips read_csv(std::istream& input, const std::string& name) {
  std::string line;
  if (!read_line(input, line) || line != header) {
    throw csv_error(fmt::format("{}: the first line is not the header of taxi trips; it must be: {}", name, header));
  }
  trips table;
  for (std::size_t number = 2; read_line(input, line); ++number) table.add(parse_row(line, name, number));
  if (input.bad()) throw csv_error(fmt::format("{}: reading failed after {} rows; try again", name, table.rows()));
  if (table.rows() == 0) throw csv_error(fmt::format("{}: there are no trips in it; give a file with some", name));
  return table;
}

trips read_csv_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw csv_error(fmt::format("{}: {}; give --csv a file that can be read", path, std::strerror(errno)));
  return read_csv(file, path);
}

void write_csv(const trips& table, std::ostream& output) {
  output << header << '\n';
  fmt::memory_buffer lines;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const trip row = table.row(i);
    fmt::format_to(std::back_inserter(lines), "id{:07},{},{},{},{},{},{},{},{},{},{}\n", row.id, row.vendor,
                   text_of(row.pickup), text_of(row.dropoff), row.passengers, row.pickup_longitude, row.pickup_latitude,
                   row.dropoff_longitude, row.dropoff_latitude, row.stored ? 'Y' : 'N', row.duration_s);
    output.write(lines.data(), static_cast<std::streamsize>(lines.size()));
    lines.clear();
  }
}

void write_csv_file(const trips& table, const std::string& path) {
  std::ofstream file(path);
  if (file) write_csv(table, file);
  file.close();
  if (!file) {
    throw csv_error(fmt::format("{}: {}; give --write-csv a file that can be written, with room for it", path,
                                std::strerror(errno)));
  }
}

}  // namespace taxi
