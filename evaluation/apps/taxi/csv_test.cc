#include "csv.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "calendar.h"
#include "generator.h"

namespace taxi {
namespace {

const std::string header =
    "id,vendor_id,pickup_datetime,dropoff_datetime,passenger_count,pickup_longitude,pickup_latitude,dropoff_longitude,"
    "dropoff_latitude,store_and_fwd_flag,trip_duration";
const std::string row =
    "id2875421,2,2016-03-14 17:24:55,2016-03-14 17:32:30,1,-73.98215484619139,40.76793670654297,-73.96463012695312,"
    "40.765602111816406,N,455";

trips read(const std::string& text) {
  std::istringstream input(text);
  return read_csv(input, "FILE");
}

// The message with which reading fails.
std::string complaint(const std::string& text) {
  try {
    read(text);
  } catch (const csv_error& error) {
    return error.what();
  }
  return "none";
}

TEST(csv, reads_a_row_of_the_data_set) {
  const trip expected = {.id = 2875421,
                         .vendor = 2,
                         .pickup = 1457976295,
                         .dropoff = 1457976750,
                         .passengers = 1,
                         .pickup_longitude = -73.98215484619139,
                         .pickup_latitude = 40.76793670654297,
                         .dropoff_longitude = -73.96463012695312,
                         .dropoff_latitude = 40.765602111816406,
                         .stored = false,
                         .duration_s = 455};
  EXPECT_EQ(read(header + "\n" + row + "\n").row(0), expected);
  EXPECT_EQ(read(header + "\r\n" + row + "\r\n").row(0), expected);
  EXPECT_EQ(read(header + "\n" + row).row(0), expected);
}

TEST(csv, reads_what_it_writes) {
  const trips table = generate(2000, 7);
  std::ostringstream text;
  write_csv(table, text);
  const trips again = read(text.str());
  ASSERT_EQ(again.rows(), table.rows());
  for (std::size_t i = 0; i < table.rows(); ++i) ASSERT_EQ(again.row(i), table.row(i)) << "row " << i;
}

TEST(csv, writes_times_before_1970) {
  EXPECT_EQ(text_of(-1), "1969-12-31 23:59:59");
}

TEST(csv, tells_what_is_wrong_and_where) {
  EXPECT_NE(complaint("").find("FILE: the first line is not the header"), std::string::npos);
  EXPECT_NE(complaint(row + "\n").find("the first line is not the header"), std::string::npos);
  EXPECT_NE(complaint(header + "\n").find("there are no trips"), std::string::npos);
  EXPECT_NE(complaint(header + "\n" + row + "\n\n").find("FILE: line 3 has '' for id"), std::string::npos);
  EXPECT_NE(complaint(header + "\n" + row + ",1\n").find("line 2 has more fields"), std::string::npos);
  EXPECT_NE(complaint(header + "\nid1,2\n").find("line 2 ends before pickup_datetime"), std::string::npos);
}

TEST(csv, refuses_fields_that_are_not_of_their_column) {
  const std::vector<std::pair<std::string, std::string>> wrong = {{"id2875421", "2875421"},
                                                                  {",2,", ",256,"},
                                                                  {",2,", ",-1,"},
                                                                  {"2016-03-14 17:24", "2016-02-30 17:24"},
                                                                  {" 17:24:55", "T17:24:55"},
                                                                  {" 17:24:55", " 24:24:55"},
                                                                  {" 17:24:55", " 17:24"},
                                                                  {"-73.98215484619139", "nan"},
                                                                  {",N,", ",no,"},
                                                                  {",455", ",455s"},
                                                                  {",455", ","},
                                                                  {",455", ",99999999999"}};
  for (const auto& [field, other] : wrong) {
    std::string changed = row;
    changed.replace(changed.find(field), field.size(), other);
    EXPECT_NE(complaint(header + "\n" + changed + "\n").find("FILE: line 2 has '"), std::string::npos) << changed;
  }
}

}  // namespace
}  // namespace taxi
