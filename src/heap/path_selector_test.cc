#include "heap/path_selector.h"

#include <gtest/gtest.h>

namespace far::heap {
namespace {

constexpr unsigned all = units_a_page;

// Objects of 80 bytes with their headers, of so many units in all.
page_use units(unsigned used) {
  return {used / 5, used};
}

TEST(path_selector, takes_the_share_of_accessed_units) {
  path_selector paths;
  EXPECT_TRUE(paths.takes_object_path(units(all * 79 / 100), 0, false));
  EXPECT_FALSE(paths.takes_object_path(units(all * 80 / 100), 0, false));
  paths.set_share(0.5);
  EXPECT_TRUE(paths.takes_object_path(units(all / 2 - 1), 0, false));
  EXPECT_FALSE(paths.takes_object_path(units(all / 2), 0, false));
}

TEST(path_selector, can_be_forced) {
  path_selector paths;
  for (const bool fetched : {false, true}) {
    for (const unsigned used : {0u, 1u, all}) {
      paths.set_share(0);
      EXPECT_FALSE(paths.takes_object_path(units(used), 0, fetched)) << used;
      paths.set_share(2);
      EXPECT_TRUE(paths.takes_object_path(units(used), 0, fetched)) << used;
    }
  }
}

TEST(path_selector, a_page_read_ahead_in_vain_keeps_its_path) {
  path_selector paths;
  EXPECT_FALSE(paths.takes_object_path(units(0), 0, true));
  EXPECT_TRUE(paths.takes_object_path(units(0), 0, false)) << "a page of objects that nobody uses";
}

// A strided walk, for example.
TEST(path_selector, a_page_that_is_used_once_needs_few_objects) {
  path_selector paths;
  constexpr unsigned enough = path_selector::worth_a_fetch;
  EXPECT_FALSE(paths.takes_object_path({enough, enough * 5}, 0, true));
  EXPECT_TRUE(paths.takes_object_path({enough - 1, (enough - 1) * 5}, 0, true));
  EXPECT_TRUE(paths.takes_object_path({enough, enough * 5, true}, 0, true)) << "some of its objects are hot";
  EXPECT_TRUE(paths.takes_object_path({enough, enough * 5}, 0, false)) << "nobody fetched it as a page";
  paths.set_share(2);
  EXPECT_TRUE(paths.takes_object_path({enough, enough * 5}, 0, true));
}

// Objects fetched one by one fill dense pages, of which the page fetch turns out to bring one wanted object each.
TEST(path_selector, learns_that_pages_filled_by_chance_are_not_worth_a_page_fetch) {
  path_selector paths;
  for (int i = 0; i < 200; ++i) static_cast<void>(paths.takes_object_path(units(1), 3, true));
  unsigned page_path = 0;
  for (int i = 0; i < 1600; ++i) page_path += !paths.takes_object_path(units(all), 3, false);
  EXPECT_EQ(page_path, 1600u / path_selector::tried_one_in);
  EXPECT_FALSE(paths.takes_object_path(units(all), 2, false)) << "other tags learn for themselves";
  EXPECT_FALSE(paths.takes_object_path(units(all), 3, true)) << "a page that did prove dense";
}

TEST(path_selector, learns_from_those_it_tries_that_they_are_worth_it_again) {
  path_selector paths;
  for (int i = 0; i < 10'000; ++i) static_cast<void>(paths.takes_object_path(units(1), 0, true));
  int rounds = 0;
  for (; rounds < 10'000; ++rounds) {
    bool all_by_page = true;
    for (unsigned i = 0; i < path_selector::tried_one_in; ++i) {
      const bool by_page = !paths.takes_object_path(units(all), 0, false);
      all_by_page &= by_page;
      if (by_page) static_cast<void>(paths.takes_object_path(units(all), 0, true));
    }
    if (all_by_page) break;
  }
  EXPECT_GT(rounds, 10);
  EXPECT_LT(rounds, 200);
}

}  // namespace
}  // namespace far::heap
