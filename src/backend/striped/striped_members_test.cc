// Members of a striped far tier that come and go.
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/striped_tier.h"

namespace far::backend {
namespace {

// Nothing in it needs a spare, and the next pages that are written would have no parity for good.
TEST_F(striped, an_empty_group_that_lacks_a_place_is_given_up) {
  open(3, {2, 1});
  const slot_id first = write_new(64);
  take_down(1);
  members_[1]->forget();
  tend(100 * ms);
  for (slot_id slot = first; slot < first + 64; ++slot) free(slot);
  tend(500 * ms);
  members_[1]->error_code = 0;
  tend_until_whole();
  static_cast<void>(write_new(64));
  tend_until_whole();
  take_down(2);
  expect_all();
}

// Whoever has read that a server is lost is told when all is well, also if nothing had to be written again.
TEST_F(striped, the_end_of_a_loss_is_told_even_if_its_pages_were_freed) {
  open(4, {2, 1});
  const slot_id first = write_new(64);
  members_[1]->error_code = ETIMEDOUT;
  for (slot_id slot = first; slot < first + 64; ++slot) free(slot);
  testing::internal::CaptureStderr();
  tend(10'000 * ms);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("considered lost"), std::string::npos) << said;
  EXPECT_NE(said.find("0 pages were written again; all are protected by parity"), std::string::npos) << said;
  testing::internal::CaptureStderr();
  static_cast<void>(write_new(64));
  tend(10'000 * ms);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "it is told once";
}

TEST_F(striped, pages_of_rows_that_are_lacking_are_counted_until_they_are_made_again) {
  open(4, {2, 1});
  for (int i = 0; i < 20; ++i) static_cast<void>(write_new(64));
  tend(1000 * ms);
  EXPECT_EQ(tested_->report().servers, 4u);
  EXPECT_EQ(tested_->report().lacking_copies, 0u);
  EXPECT_EQ(tested_->report().degraded_ns, 0u);
  ASSERT_GT(members_[1]->used(), 0u);
  take_down(1);
  tend(600 * ms);
  EXPECT_EQ(tested_->report().away_servers, 1u);
  const std::uint64_t lacking = tested_->report().lacking_copies;
  EXPECT_GT(lacking, 0u);
  EXPECT_LE(lacking, members_[1]->used());
  EXPECT_GT(tested_->report().degraded_ns, 200 * ms);
  tend(60'000 * ms);
  EXPECT_EQ(tested_->report().lacking_copies, 0u);
  EXPECT_GE(tested_->report().repaired_copies, lacking);
}

// Each page of a row is in another zone, so a whole zone may fail, and what was there is made again in others.
TEST_F(striped, zones_fail_as_a_whole) {
  open_in({"a", "a", "b", "b", "c", "c", "d"}, {2, 1});
  for (int i = 0; i < 40; ++i) static_cast<void>(write_new(64));
  for (std::size_t zone = 0; zone < 4; ++zone) {
    const std::size_t first = 2 * zone;
    for (std::size_t i = first; i < std::min<std::size_t>(first + 2, 7); ++i) members_[i]->error_code = ETIMEDOUT;
    tend(20 * ms);
    expect_all();
    tend(60'000 * ms);
    static_cast<void>(write_new(64));
    for (std::size_t i = first; i < std::min<std::size_t>(first + 2, 7); ++i) members_[i]->error_code = 0;
    tend_until_whole();
  }
  expect_all();
}

// Three zones are needed; with two there are pages, but no parity.
TEST_F(striped, rows_wait_for_a_zone_that_is_away) {
  open_in({"a", "a", "b", "b", "c"}, {2, 1});
  take_down_for_good(4);
  for (int i = 0; i < 20; ++i) static_cast<void>(write_new(64));
  EXPECT_FALSE(tested_->is_whole());
  members_[4]->error_code = 0;
  tend_until_whole();
  take_down(0);
  members_[1]->error_code = ETIMEDOUT;
  tend(20 * ms);
  expect_all();
}

// With as many servers as there are, not more are there to come. Then it is as good as another one.
TEST_F(striped, an_empty_group_that_lacks_a_place_is_used_while_a_member_is_away) {
  open(3, {2, 1});
  const slot_id first = write_new(64);
  take_down_for_good(1);
  members_[1]->forget();
  tend(100 * ms);
  for (slot_id slot = first; slot < first + 64; ++slot) free(slot);
  tend(500 * ms);
  EXPECT_EQ(tested_->counted().mended.removed_groups, 0u);
  static_cast<void>(write_new(64));
  expect_all();
  members_[1]->error_code = 0;
  tend_until_whole();
  take_down(2);
  expect_all();
}

// All of its extents, and new groups beside them, find room on the others: 18 for 6 groups, of which 5 are full.
TEST_F(striped, a_member_is_removed_only_if_the_others_have_room) {
  open(4, {2, 1}, 6 * group_slots);
  while (model_.size() + 64 <= 5 * group_slots * 2) static_cast<void>(write_new(64));
  EXPECT_EQ(tested_->remove_server("m0", removal::begin).error().message,
            "server m0 cannot be removed: the others have room for 24.0 MiB, and 28.0 MiB are stored; add a server "
            "first (farheap add-server PID HOST:PORT), or give those more memory");
  for (int i = 0; i < 16; ++i) {
    for (slot_id slot = model_.begin()->first, end = slot + 64; slot < end; ++slot) free(slot);
  }
  tend(200 * ms);
  ASSERT_TRUE(tested_->remove_server("m0", removal::begin).ok());
  while (true) {
    const result<slot_id> more = tested_->allocate(64);
    if (!more.ok()) break;
    ASSERT_EQ(write(more.value(), 64), 0);
  }
  for (int i = 0; i < 1000 && members_[0]->used() > 0; ++i) tend(ms);
  EXPECT_EQ(members_[0]->used(), 0u);
  expect_all();
}

TEST_F(striped, a_removed_member_is_emptied_under_writes_and_gone) {
  open(4, {2, 1});
  for (int i = 0; i < 40; ++i) static_cast<void>(write_new(64));
  ASSERT_GT(members_[1]->used(), 0u);
  result<std::uint64_t> left = tested_->remove_server("m1", removal::begin);
  for (int i = 0; i < 1000 && left.ok() && left.value() > 0; ++i) {
    if (i % 100 == 0) static_cast<void>(write_new(64));
    tend(ms);
    left = tested_->remove_server("m1", removal::go_on);
  }
  ASSERT_TRUE(left.ok());
  EXPECT_EQ(left.value(), 0u);
  EXPECT_EQ(members_[1]->used(), 0u);
  EXPECT_EQ(members_[1]->retirements, 1u);
  EXPECT_EQ(tested_->describe(), "parity 2+1 on m0, m2, m3");
  tend_until_whole();
  members_[1]->error_code = ETIMEDOUT;
  take_down(2);
  expect_all();
  members_[2]->error_code = 0;
  tend_until_whole();
  // Another one of its name.
  EXPECT_FALSE(tested_->remove_server("m2", removal::begin).ok());
  auto again = std::make_unique<controlled>("m1", 4096);
  members_.push_back(again.get());
  ASSERT_TRUE(tested_->add_member(std::move(again), "m1").ok());
  tend_until_whole();
  EXPECT_GT(members_[4]->used(), 0u);
  take_down(0);
  expect_all();
}

// Spares are complete, and wait while a child reads where the pages were. They are not given up for a member that only
// may come back.
TEST_F(striped, spares_take_over_from_a_member_that_stops_while_it_drains) {
  open(4, {2, 1});
  for (int i = 0; i < 20; ++i) static_cast<void>(write_new(64));
  tested_->keep_in_place(true);
  members_[0]->is_draining = true;
  tend(3000 * ms);
  EXPECT_GT(members_[0]->used(), 0u);
  take_down(0);
  tested_->keep_in_place(false);
  tend(500 * ms);
  take_down(1);
  expect_all();
}

// What lies there is not given up before the member is lost.
TEST_F(striped, children_go_on_reading_a_member_that_was_away_for_a_moment) {
  open(4, {2, 1});
  for (int i = 0; i < 20; ++i) static_cast<void>(write_new(64));
  const auto drain_and_falter = [&] {
    members_[0]->is_draining = true;
    tend(3000 * ms);
    take_down(0);
    tend(500 * ms);
    members_[0]->error_code = 0;
    tend(500 * ms);
  };
  const auto read_without_another = [&] {
    members_[1]->error_code = ETIMEDOUT;
    expect_all();
    return HasFailure() ? 3 : 0;
  };
  EXPECT_EQ(read_in_child(drain_and_falter, read_without_another), 0);
}

// The server of a tier that starts was away, and gets its share when it comes.
TEST_F(striped, extents_move_to_a_member_that_comes_late) {
  std::vector<std::unique_ptr<backend>> owned;
  for (int i = 0; i < 4; ++i) owned.push_back(make_member(16 * group_slots));
  members_[2]->error_code = ECONNREFUSED;
  open(std::move(owned), {2, 1});
  while (model_.size() < 8 * group_slots * 2) static_cast<void>(write_new(64));
  EXPECT_EQ(members_[2]->used(), 0u);
  members_[2]->error_code = 0;
  tend_until_whole();
  tend(100 * ms);
  tend_until_whole();
  EXPECT_GT(members_[2]->used(), 2 * group_slots);
  take_down(0);
  expect_all();
}

TEST_F(striped, a_draining_member_is_emptied_and_may_then_stop) {
  open(4, {2, 1});
  for (int i = 0; i < 40; ++i) static_cast<void>(write_new(64));
  members_[1]->is_draining = true;
  for (int i = 0; i < 100 && members_[1]->used() > 0; ++i) tend(100 * ms);
  EXPECT_EQ(members_[1]->used(), 0u);
  members_[1]->error_code = ETIMEDOUT;
  tend(100 * ms);
  take_down(2);
  expect_all();
}

TEST_F(striped, groups_move_to_a_member_that_is_added) {
  open(3, {2, 1}, 16 * group_slots);
  while (model_.size() < 12 * group_slots * 2) static_cast<void>(write_new(64));
  ASSERT_TRUE(add(16 * group_slots).ok());
  tend_until_whole();
  EXPECT_GT(members_[3]->used(), 3 * group_slots);
  EXPECT_GT(tested_->counted().mended.moved_extents, 0u);
  take_down(0);
  expect_all();
}

// Any member may fail at any moment of a move.
TEST_F(striped, rows_keep_their_parity_while_extents_move) {
  open(3, {2, 1}, 16 * group_slots);
  while (model_.size() < 8 * group_slots * 2) static_cast<void>(write_new(64));
  ASSERT_TRUE(add(16 * group_slots).ok());
  for (int i = 0; i < 60'000 && !tested_->is_whole(); ++i) {
    tend(ms);
    const stripe_table& table = tested_->books().table;
    const lock_guard guard(table.lock);
    for (std::uint64_t number = 0; number < table.groups_end(); ++number) {
      const stripe_group& seen = table.group_at(number);
      for (std::size_t place = 0; place < 3; ++place) {
        ASSERT_TRUE(!seen.placed || (seen.holders[place].present && seen.stale(place).empty())) << "group " << number;
      }
    }
  }
  ASSERT_TRUE(tested_->is_whole());
  EXPECT_GT(tested_->counted().mended.moved_extents, 0u);
}

TEST_F(striped, a_spare_on_a_lost_member_is_not_in_the_way_of_another) {
  open(5, {2, 1});
  for (int i = 0; i < 30; ++i) static_cast<void>(write_new(64));
  members_[0]->error_code = ETIMEDOUT;
  std::size_t second = maximum_members;
  for (int i = 0; i < 5000 && second == maximum_members; ++i) {
    tend(ms);
    second = incomplete_spare();
  }
  ASSERT_LT(second, members_.size());
  take_down_for_good(second);
  tend(10'000 * ms);
  take_down(second == 1 ? 2 : 1);
  expect_all();
}

}  // namespace
}  // namespace far::backend
