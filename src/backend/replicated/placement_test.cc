#include "backend/replicated/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace far::backend {
namespace {

constexpr std::uint64_t groups = 20'000;

std::vector<std::uint64_t> names(std::size_t count) {
  std::vector<std::uint64_t> hashes;
  for (std::size_t i = 0; i < count; ++i) hashes.push_back(hash_of_name("tcp://cache" + std::to_string(i) + ":7000"));
  return hashes;
}

std::set<std::uint64_t> holders(const std::vector<std::uint64_t>& members, std::uint64_t group, std::size_t copies) {
  const member_order order = order_for(members, group);
  std::set<std::uint64_t> held;
  for (std::size_t i = 0; i < copies; ++i) held.insert(members[order.members[i]]);
  return held;
}

TEST(rendezvous, every_member_is_in_the_order_once) {
  const auto members = names(7);
  for (std::uint64_t group = 0; group < 100; ++group) {
    const member_order order = order_for(members, group);
    const std::set<std::uint8_t> seen(order.all().begin(), order.all().end());
    EXPECT_EQ(order.count, 7u);
    EXPECT_EQ(seen.size(), 7u);
    for (std::size_t i = 1; i < order.count; ++i) {
      EXPECT_GE(weight(members[order.members[i - 1]], group), weight(members[order.members[i]], group));
    }
  }
}

TEST(rendezvous, groups_spread_evenly) {
  for (const std::size_t count : {2u, 3u, 10u}) {
    const auto members = names(count);
    std::vector<std::uint64_t> held(count);
    for (std::uint64_t group = 0; group < groups; ++group) ++held[order_for(members, group).members[0]];
    for (const std::uint64_t load : held) {
      EXPECT_NEAR(static_cast<double>(load), groups / static_cast<double>(count), groups * 0.02);
    }
  }
}

TEST(rendezvous, second_copies_of_a_member_spread_over_all_the_others) {
  const auto members = names(4);
  std::vector<std::uint64_t> seconds(4);
  for (std::uint64_t group = 0; group < groups; ++group) {
    const member_order order = order_for(members, group);
    if (order.members[0] == 0) ++seconds[order.members[1]];
  }
  EXPECT_EQ(seconds[0], 0u);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_NEAR(static_cast<double>(seconds[i]), groups / 12.0, groups * 0.02);
}

TEST(rendezvous, a_new_member_takes_its_share_and_nothing_else_moves) {
  const auto before = names(4);
  const auto after = names(5);
  std::uint64_t moved = 0;
  for (std::uint64_t group = 0; group < groups; ++group) {
    const auto old_holders = holders(before, group, 2);
    auto new_holders = holders(after, group, 2);
    if (new_holders == old_holders) continue;
    ++moved;
    EXPECT_EQ(new_holders.erase(after[4]), 1u) << "a group moves only to the new member";
    for (const std::uint64_t holder : new_holders) EXPECT_EQ(old_holders.count(holder), 1u);
  }
  EXPECT_NEAR(static_cast<double>(moved), groups * 2 / 5.0, groups * 0.02);
}

TEST(rendezvous, when_a_member_goes_only_its_groups_move) {
  const auto before = names(5);
  auto after = before;
  after.erase(after.begin() + 2);
  for (std::uint64_t group = 0; group < groups; ++group) {
    const auto old_holders = holders(before, group, 2);
    const auto new_holders = holders(after, group, 2);
    if (old_holders.count(before[2]) == 0) {
      EXPECT_EQ(new_holders, old_holders);
    }
  }
}

TEST(placeable_groups, each_copy_needs_another_member) {
  constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
  const auto placeable = [](std::vector<std::uint64_t> room, std::size_t copies) {
    return placeable_groups(room, copies);
  };
  EXPECT_EQ(placeable({10, 20, 30}, 1), 60u);
  EXPECT_EQ(placeable({10, 20, 30}, 2), 30u);
  EXPECT_EQ(placeable({10, 20, 100}, 2), 30u) << "the largest cannot hold two copies of a group";
  EXPECT_EQ(placeable({10, 20, 100}, 3), 10u);
  EXPECT_EQ(placeable({10, 20}, 3), 0u);
  EXPECT_EQ(placeable({10, 0}, 2), 0u);
  EXPECT_EQ(placeable({10, unlimited}, 2), 10u);
  EXPECT_EQ(placeable({unlimited, unlimited}, 2), unlimited);
  EXPECT_EQ(placeable({}, 1), 0u);
}

}  // namespace
}  // namespace far::backend
