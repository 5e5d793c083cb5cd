#include "preload/hinted_places.h"

#include <gtest/gtest.h>

namespace far::preload {
namespace {

const void* at(std::uintptr_t address) {
  return reinterpret_cast<const void*>(address);
}

TEST(hinted_places, a_size_is_followed_once_a_mapping_of_it_was_given_back) {
  hinted_places tested;
  EXPECT_FALSE(tested.follows(64 * kib));
  tested.came_elsewhere(at(0x10000), 64 * kib);
  EXPECT_FALSE(tested.follows(64 * kib));
  tested.given_back(at(0x10000), 64 * kib);
  EXPECT_TRUE(tested.follows(64 * kib));
  EXPECT_TRUE(tested.follows(64 * kib - 1)) << "as many pages";
  EXPECT_FALSE(tested.follows(60 * kib));
  EXPECT_FALSE(tested.follows(68 * kib));
}

TEST(hinted_places, other_memory_that_is_given_back_says_nothing) {
  hinted_places tested;
  tested.given_back(at(0x10000), 64 * kib);
  tested.came_elsewhere(at(0x10000), 64 * kib);
  tested.given_back(at(0x20000), 64 * kib);
  tested.given_back(at(0x10000), 32 * kib);
  tested.given_back(nullptr, 64 * kib);
  EXPECT_FALSE(tested.follows(64 * kib));
}

TEST(hinted_places, what_is_large_is_never_followed) {
  hinted_places tested;
  for (const std::size_t bytes : {hinted_places::most_bytes, hinted_places::most_bytes + 1, std::size_t{64} * mib}) {
    tested.came_elsewhere(at(0x10000), bytes);
    tested.given_back(at(0x10000), bytes);
    EXPECT_EQ(tested.follows(bytes), bytes == hinted_places::most_bytes) << bytes;
  }
  EXPECT_TRUE(tested.follows(hinted_places::most_bytes - 1));
  EXPECT_FALSE(tested.follows(page_bytes));
  EXPECT_FALSE(tested.follows(0));
}

TEST(hinted_places, reservations_are_followed_after_hundreds_of_tries) {
  hinted_places tested;
  constexpr std::size_t bytes = 6 * gib;
  for (unsigned i = 0; i < hinted_places::most_tries; ++i) {
    EXPECT_FALSE(tested.follows_reservations());
    tested.reservation_came_elsewhere(at(0x10000), bytes);
    tested.given_back(at(0x20000), bytes);
    tested.given_back(at(0x10000), bytes / 2);
    EXPECT_FALSE(tested.follows_reservations()) << "that was other memory";
    tested.given_back(at(0x10000), bytes);
    tested.given_back(at(0x10000), bytes);
  }
  EXPECT_TRUE(tested.follows_reservations());
  EXPECT_FALSE(tested.follows(64 * kib));
  tested.mapped();
  EXPECT_TRUE(tested.follows_reservations()) << "it has insisted";
}

TEST(hinted_places, reservations_that_were_used_or_kept_say_nothing) {
  constexpr std::size_t bytes = 6 * gib;
  const auto give_back_last = [](hinted_places& tested) {
    for (unsigned i = 1; i < hinted_places::most_tries; ++i) {
      tested.reservation_came_elsewhere(at(2 * bytes), bytes);
      tested.given_back(at(2 * bytes), bytes);
    }
    tested.reservation_came_elsewhere(at(2 * bytes), bytes);
  };
  const auto follows = [&](const auto& meanwhile) {
    hinted_places tested;
    give_back_last(tested);
    meanwhile(tested);
    tested.given_back(at(2 * bytes), bytes);
    return tested.follows_reservations();
  };
  EXPECT_TRUE(follows([](hinted_places& tested) { tested.used(at(3 * bytes), page_bytes); })) << "behind it";
  EXPECT_TRUE(follows([](hinted_places& tested) { tested.used(at(bytes), bytes); })) << "before it";
  EXPECT_FALSE(follows([](hinted_places& tested) { tested.used(at(2 * bytes), page_bytes); }));
  EXPECT_FALSE(follows([](hinted_places& tested) { tested.used(at(3 * bytes - page_bytes), bytes); }));
  EXPECT_FALSE(follows([](hinted_places& tested) { tested.used(at(bytes), bytes + page_bytes); }));
  EXPECT_FALSE(follows([](hinted_places& tested) { tested.mapped(); })) << "another mapping came in between";
  EXPECT_FALSE(follows([](hinted_places& tested) { tested.reservation_came_elsewhere(at(bytes), bytes); })) << "kept";
}

}  // namespace
}  // namespace far::preload
