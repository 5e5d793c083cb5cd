#include "analyses.h"

#include <gtest/gtest.h>

namespace taxi {
namespace {

constexpr local_seconds january_31 = 1454198400;  // 2016, at midnight
constexpr local_seconds february_1 = january_31 + 86400;

trips three_trips() {
  trips table;
  trip row = {.id = 1,
              .vendor = 2,
              .pickup = february_1 - 1,
              .dropoff = february_1 + 9,
              .passengers = 1,
              .pickup_longitude = 0,
              .pickup_latitude = 0,
              .dropoff_longitude = 90,
              .dropoff_latitude = 0,
              .stored = false,
              .duration_s = 10};
  table.add(row);
  row.id = 2;
  row.pickup = january_31;
  row.dropoff = january_31 + 20;
  row.duration_s = 20;
  row.dropoff_longitude = 0;
  row.stored = true;
  table.add(row);
  row.id = 3;
  row.vendor = 1;
  row.pickup = february_1;
  row.dropoff = february_1;
  row.duration_s = 0;
  row.passengers = 6;
  row.dropoff_latitude = 1;
  table.add(row);
  return table;
}

TEST(analyses, count_vendors_and_passengers) {
  EXPECT_EQ(count_vendors(three_trips()), (counts{{1, 1}, {2, 2}}));
  EXPECT_EQ(count_passengers(three_trips()), (std::map<unsigned, counts>{{1, {{6, 1}}}, {2, {{1, 2}}}}));
}

TEST(analyses, summarise_durations) {
  const duration_summary found = summarise_durations(three_trips());
  EXPECT_EQ(found.shortest_s, 0);
  EXPECT_EQ(found.longest_s, 20);
  EXPECT_DOUBLE_EQ(found.mean_s, 10);
}

TEST(analyses, summarise_stored) {
  EXPECT_EQ(summarise_stored(three_trips()).trips, 2u);
  EXPECT_DOUBLE_EQ(summarise_stored(three_trips()).share, 2.0 / 3);
}

TEST(analyses, measure_distances_on_a_great_circle) {
  std::vector<double> distances_km;
  const distance_summary found = measure_distances(three_trips(), distances_km);
  ASSERT_EQ(distances_km.size(), 3u);
  EXPECT_NEAR(distances_km[0], 10007.543, 0.001);  // a quarter of the equator
  EXPECT_EQ(distances_km[1], 0);
  EXPECT_NEAR(distances_km[2], 111.195, 0.001);  // one degree
  EXPECT_EQ(found.longest_km, distances_km[0]);
  EXPECT_DOUBLE_EQ(found.mean_km, (distances_km[0] + distances_km[2]) / 3);
  EXPECT_EQ(found.beyond_100_km, 2u);
}

TEST(analyses, count_pickups_and_find_their_range) {
  EXPECT_EQ(find_pickup_range(three_trips()).first, january_31);
  EXPECT_EQ(find_pickup_range(three_trips()).last, february_1);
  const pickup_counts found = count_pickups(three_trips());
  EXPECT_EQ(found.by_hour, (counts{{0, 2}, {23, 1}}));
  EXPECT_EQ(found.by_day, (counts{{1, 1}, {31, 2}}));
  EXPECT_EQ(found.by_month, (counts{{1, 2}, {2, 1}}));
}

TEST(analyses, find_medians_of_odd_and_even_numbers_of_trips) {
  EXPECT_EQ(median_durations_by_day(three_trips()), (medians{{1, 0}, {31, 15}}));
  trips table = three_trips();
  trip third = table.row(1);
  third.duration_s = 12;
  table.add(third);
  EXPECT_EQ(median_durations_by_month(table), (medians{{1, 12}, {2, 0}}));
}

}  // namespace
}  // namespace taxi
