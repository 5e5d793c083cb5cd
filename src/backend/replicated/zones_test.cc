// Copies in different zones: racks, hosts, whatever fails as one.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/replicated/replicated_backend.h"
#include "tests/support/controlled_members.h"

namespace far::backend {
namespace {

class zones : public replicated_test {
 protected:
  void open_in(std::vector<std::string> names, std::size_t copies, std::size_t least = 1,
               std::uint64_t member_slots = 8192) {
    zones_ = std::move(names);
    std::vector<std::unique_ptr<backend>> owned;
    for (std::size_t i = 0; i < zones_.size(); ++i) owned.push_back(make_member(member_slots));
    replicated_options chosen;
    chosen.copies = copies;
    chosen.least_copies = least;
    chosen.clock = &clock_;
    chosen.lost_after_ns = 1000 * ms;
    chosen.zones = zones_;
    tested_ = std::move(replicated_backend::create(std::move(owned), chosen)).value();
    queue_ = tested_->open_channel(16).value();
  }
  result<void> add_in(const std::string& zone) {
    zones_.push_back(zone);
    auto added = make_member();
    std::string name = added->describe();
    return tested_->add_member(std::move(added), std::move(name), zone);
  }
  void take_down_zone(const std::string& zone, bool down) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (zones_[i] == zone) members_[i]->error_code = down ? ETIMEDOUT : 0;
    }
    tend(3000 * ms);
  }
  // Of each group that is in use, the zones that have all of its pages.
  void expect_zones(std::size_t copies) {
    const layer& books = tested_->books();
    for (std::uint64_t number = 0; number < books.groups_end.load(); ++number) {
      group& seen = books.group_at(number);
      const lock_guard guard(seen.lock);
      if (!seen.placed || seen.owned.empty()) continue;
      std::set<std::string> whole;
      for (std::size_t place = 0; place < maximum_places; ++place) {
        const copy& held = seen.copies[place];
        if (held.present && seen.stale(place).empty()) whole.insert(zones_[held.member]);
      }
      EXPECT_GE(whole.size(), copies) << "group " << number;
    }
  }

  std::vector<std::string> zones_;
};

TEST_F(zones, copies_are_in_different_ones_and_a_whole_zone_may_fail) {
  constexpr std::uint64_t groups = 12;
  open_in({"a", "a", "a", "b", "b", "b"}, 2);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  expect_zones(2);
  take_down_zone("a", true);
  expect_values(first, groups);
  // Written to one zone, and to the other one when it is back.
  fill(first, groups);
  take_down_zone("a", false);
  tend_until_whole();
  expect_zones(2);
  take_down_zone("b", true);
  expect_values(first, groups);
}

TEST_F(zones, a_lost_server_is_replaced_by_another_one_of_its_zone) {
  constexpr std::uint64_t groups = 8;
  open_in({"a", "a", "b"}, 2);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  ASSERT_GT(tested_->members()[0].groups, 0u);
  ASSERT_EQ(tested_->members()[2].groups, groups) << "zone b is one server";
  take_down(0);
  tend(60'000 * ms);
  EXPECT_EQ(tested_->members()[1].groups, groups);
  expect_zones(2);
  take_down(2);
  expect_values(first, groups);
}

TEST_F(zones, a_zone_that_is_away_leaves_fewer_copies_and_not_two_in_one_zone) {
  constexpr std::uint64_t groups = 4;
  open_in({"a", "a", "b"}, 2);
  take_down_zone("b", true);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  tend(20'000 * ms);
  EXPECT_EQ(tested_->members()[0].groups + tested_->members()[1].groups, groups);
  take_down_zone("b", false);
  tend_until_whole();
  expect_zones(2);
}

TEST_F(zones, least_copies_are_in_different_ones) {
  open_in({"a", "a", "b"}, 2, 2);
  const slot_id first = tested_->allocate(group_slots).value();
  ASSERT_EQ(write(first, 1), 0);
  take_down_zone("b", true);
  EXPECT_NE(write(first, 2), 0);
  take_down_zone("b", false);
  EXPECT_EQ(write(first, 3), 0);
}

TEST_F(zones, the_last_server_of_a_zone_that_is_needed_is_not_removed) {
  open_in({"a", "a", "b"}, 2);
  EXPECT_EQ(tested_->remove_server("m2", removal::begin).error().code, EBUSY);
  EXPECT_TRUE(tested_->remove_server("m0", removal::begin).ok());
}

TEST_F(zones, an_added_server_takes_a_share_of_its_zone) {
  constexpr std::uint64_t groups = 16;
  open_in({"a", "b"}, 2);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  ASSERT_TRUE(add_in("a").ok());
  tend_until_whole();
  EXPECT_GT(tested_->members()[2].groups, groups / 5);
  EXPECT_EQ(tested_->members()[0].groups + tested_->members()[2].groups, groups);
  expect_zones(2);
  take_down_zone("a", true);
  expect_values(first, groups);
}

// Two large servers in one zone do not help: the other zone has room for 2 groups.
TEST_F(zones, the_room_is_that_of_the_zones) {
  open_in({"a", "a", "b"}, 2, 1, 2 * group_slots);
  EXPECT_EQ(tested_->report().total_slots, 2 * group_slots);
  ASSERT_TRUE(tested_->allocate(2 * group_slots).ok());
  EXPECT_EQ(tested_->allocate(1).error().code, ENOSPC);
}

// Members of random zones come, fail one after the other, and return; in the end each page is in as many zones as it
// has copies, and any zone may fail.
TEST_F(zones, random_failures_end_with_copies_in_different_ones) {
  std::mt19937_64 random(7);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  for (int round = 0; round < 12; ++round) {
    if (tested_ != nullptr) tested_->validate();
    queue_.reset();
    tested_.reset();
    members_.clear();
    std::vector<std::string> names{"a", "b", "c"};
    while (names.size() < 5 + below(3)) names.push_back(std::string(1, static_cast<char>('a' + below(3))));
    const std::size_t copies = 2 + below(2);
    open_in(names, copies);
    constexpr std::uint64_t groups = 6;
    const slot_id first = tested_->allocate(groups * group_slots).value();
    fill(first, groups);
    for (int event = 0; event < 6; ++event) {
      const std::size_t victim = below(members_.size());
      members_[victim]->error_code = ETIMEDOUT;
      tend((100 + below(5000)) * ms);
      expect_values(first, groups);
      if (below(3) == 0) members_[victim]->forget();
      members_[victim]->error_code = 0;
      if (event == 3) {
        ASSERT_TRUE(add_in(std::string(1, static_cast<char>('a' + below(3)))).ok());
      }
      tend_until_whole();
      expect_zones(copies);
    }
    const std::string zone(1, static_cast<char>('a' + below(3)));
    take_down_zone(zone, true);
    expect_values(first, groups);
  }
}

}  // namespace
}  // namespace far::backend
