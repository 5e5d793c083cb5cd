// Members that leave, because their servers are about to stop or because the user removes them.
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "backend/replicated/replicated_backend.h"
#include "tests/support/controlled_members.h"

namespace far::backend {
namespace {

class leaving_members : public replicated_test {
 protected:
  [[nodiscard]] std::uint64_t groups_on(std::size_t index) const { return tested_->members()[index].groups; }

  void tend_until_empty(std::size_t index) {
    for (int i = 0; i < 60'000 && groups_on(index) > 0; ++i) tend(ms);
    ASSERT_EQ(groups_on(index), 0u) << tested_->describe();
    tested_->validate();
  }

  // Its process ends, and another one is started in its place.
  void restart(std::size_t index) {
    members_[index]->error_code = ECONNREFUSED;
    tend(2000 * ms);
    members_[index]->forget();
    members_[index]->is_draining = false;
    members_[index]->error_code = 0;
    tend_until_whole();
  }

  // The answer to a removal that has been waited for.
  result<std::uint64_t> remove(const std::string& name) {
    result<std::uint64_t> left = tested_->remove_server(name, removal::begin);
    for (int i = 0; i < 60'000 && left && left.value() > 0; ++i) {
      tend(ms);
      left = tested_->remove_server(name, removal::go_on);
    }
    return left;
  }
};

TEST_F(leaving_members, one_after_the_other_is_restarted_and_no_single_copy_is_lost) {
  constexpr std::uint64_t groups = 12;
  open(3, 1);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  for (std::size_t stopped = 0; stopped < 3; ++stopped) {
    ASSERT_GT(groups_on(stopped), 0u);
    members_[stopped]->is_draining = true;
    tend_until_empty(stopped);
    EXPECT_EQ(members_[stopped]->used(), 0u) << "what was copied is given back, so the server knows that it may end";
    restart(stopped);
    expect_values(first, groups);
    if (stopped == 2) continue;
    // Whatever is placed now may be on the one that has come back.
    const slot_id more = tested_->allocate(4 * group_slots).value();
    fill(more, 4);
    tested_->free(more, 4 * group_slots);
  }
}

TEST_F(leaving_members, a_copy_is_replaced_before_it_is_given_up) {
  constexpr std::uint64_t groups = 6;
  open(3, 2);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  members_[1]->is_draining = true;
  const layer& books = tested_->books();
  for (int i = 0; i < 60'000 && groups_on(1) > 0; ++i) {
    tend(ms);
    for (std::uint64_t number = 0; number < groups; ++number) {
      const group& seen = books.group_at(number);
      std::size_t whole = 0;
      for (std::size_t place = 0; place < maximum_places; ++place) {
        whole += seen.copies[place].present && !seen.copies[place].leaving && seen.stale(place).empty();
      }
      ASSERT_GE(whole, 2u) << "any other member may fail at any moment";
    }
  }
  tend_until_empty(1);
  take_down(1);
  take_down(2);
  expect_values(first, groups);
}

TEST_F(leaving_members, what_is_written_meanwhile_moves_along) {
  constexpr std::uint64_t groups = 8;
  open(2, 1);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  members_[0]->is_draining = true;
  int value = 0;
  for (int i = 0; i < 6000 && groups_on(0) > 0; ++i) {
    tend(10 * ms);
    ++value;
    for (std::uint64_t number = 0; number < groups; ++number) {
      ASSERT_EQ(write(first + number * group_slots + 7, value % 200), 0);
    }
  }
  tend_until_empty(0);
  ASSERT_GT(value, 0);
  take_down(0);
  for (std::uint64_t number = 0; number < groups; ++number) {
    EXPECT_EQ(read(first + number * group_slots + 7), value % 200);
  }
  expect_values(first, groups);
}

TEST_F(leaving_members, without_room_elsewhere_the_copies_stay_and_new_groups_take_no_room) {
  open(2, 1, 4 * group_slots);
  const slot_id first = tested_->allocate(6 * group_slots).value();
  fill(first, 6);
  members_[0]->is_draining = true;
  for (int i = 0; i < 100; ++i) tend(10 * ms);
  EXPECT_GT(groups_on(0), 0u);
  EXPECT_FALSE(tested_->allocate(group_slots).ok());
  expect_values(first, 6);
  ASSERT_TRUE(add(8 * group_slots).ok());
  tend_until_empty(0);
  restart(0);
  expect_values(first, 6);
}

TEST_F(leaving_members, two_of_them_at_a_time_need_one_place_after_the_other) {
  constexpr std::uint64_t groups = 5;
  open(5, 3);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  members_[0]->is_draining = members_[1]->is_draining = true;
  tend_until_empty(0);
  tend_until_empty(1);
  for (const std::size_t stopped : {0u, 1u, 2u, 3u}) take_down(stopped);
  expect_values(first, groups);
}

TEST_F(leaving_members, copies_that_a_child_may_read_are_kept_until_it_has_ended) {
  constexpr std::uint64_t groups = 4;
  open(2, 1);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  tested_->keep_in_place(true);
  const std::uint64_t before = groups_on(0);
  members_[0]->is_draining = true;
  tend(5000 * ms);
  EXPECT_EQ(groups_on(0), before);
  EXPECT_EQ(groups_on(1), groups) << "the copies are made all the same";
  tested_->keep_in_place(false);
  tend_until_empty(0);
  expect_values(first, groups);
}

// One that does not answer is asked again as soon as the question before has run out of time.
TEST_F(leaving_members, what_a_dead_server_held_is_given_up_although_it_is_asked_all_the_time) {
  constexpr std::uint64_t groups = 2;
  open(3, 2);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  ASSERT_GT(groups_on(0), 0u);
  members_[0]->error_code = ETIMEDOUT;
  for (int asked = 0; asked < 200 && groups_on(0) > 0; ++asked) {
    members_[0]->holds_back_reads = true;
    for (int i = 0; i < 200; ++i) tend(ms);
    members_[0]->holds_back_reads = false;
    tend(ms);
  }
  EXPECT_EQ(groups_on(0), 0u) << tested_->describe();
  expect_values(first, groups);
}

TEST_F(leaving_members, a_server_is_removed_and_may_be_added_again) {
  constexpr std::uint64_t groups = 10;
  open(3, 1);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  const std::uint64_t held_bytes = groups_on(1) * group_slots * page_bytes;
  ASSERT_GT(held_bytes, 0u);
  EXPECT_EQ(tested_->remove_server("m1", removal::begin).value(), held_bytes);
  EXPECT_EQ(members_[1]->retirements, 0u);
  members_[1]->refused_retirements = 2;
  EXPECT_EQ(remove("m1").value(), 0u);
  EXPECT_EQ(members_[1]->retirements, 1u) << "it may be ended as soon as this is said";
  EXPECT_EQ(tested_->remove_server("m1", removal::begin).value(), 0u) << "it may be asked again";
  EXPECT_EQ(tested_->remove_server("m2", removal::go_on).error().code, ENOENT) << "nobody has removed that one";
  EXPECT_EQ(tested_->describe().find("m1"), std::string::npos);
  members_[1]->forget();
  members_[1]->error_code = ECONNREFUSED;
  tend(3000 * ms);
  EXPECT_TRUE(tested_->is_whole()) << "nobody asks for it any more";
  expect_values(first, groups);

  auto again = std::make_unique<controlled>("m1");
  controlled& added = *again;
  ASSERT_TRUE(tested_->add_member(std::move(again), "m1").ok());
  tend_until_whole();
  EXPECT_GT(added.used(), 0u);
  expect_values(first, groups);
  EXPECT_EQ(tested_->remove_server("m1", removal::go_on).value(), 0u) << "the removal of before is over";
  EXPECT_EQ(tested_->describe().find("leaving"), std::string::npos) << "the new one stays";
  EXPECT_EQ(remove("m1").value(), 0u) << "of two members of one name, the present one";
  EXPECT_EQ(added.used(), 0u);
  expect_values(first, groups);
}

TEST_F(leaving_members, a_server_that_is_dead_can_be_removed_when_there_are_other_copies) {
  constexpr std::uint64_t groups = 6;
  open(3, 2);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  take_down(0);
  EXPECT_EQ(remove("m0").value(), 0u);
  tend_until_whole();
  expect_values(first, groups);
}

TEST_F(leaving_members, servers_that_are_needed_are_not_removed) {
  open(2, 2, 8 * group_slots);
  const slot_id first = tested_->allocate(6 * group_slots).value();
  fill(first, 6);
  const auto refused = [this](const std::string& name, int code, const std::string& words) {
    const result<std::uint64_t> left = tested_->remove_server(name, removal::begin);
    ASSERT_FALSE(left.ok());
    EXPECT_EQ(left.error().code, code);
    EXPECT_NE(left.error().message.find(words), std::string::npos) << left.error().message;
  };
  refused("m1", EBUSY, "2 copies need as many servers, and 1 would be left");
  refused("m7", ENOENT, "m7 does not belong to the far tier, which has m1, m0");
  ASSERT_TRUE(add(2 * group_slots).ok());
  refused("m1", ENOSPC, "the others have room for 4.00 MiB, and 12.0 MiB are stored");
  EXPECT_EQ(tested_->describe().find("leaving"), std::string::npos) << "a refusal changes nothing";
  ASSERT_TRUE(add(8 * group_slots).ok());
  EXPECT_EQ(remove("m1").value(), 0u);
  expect_values(first, 6);
}

TEST_F(leaving_members, a_lost_server_is_none_that_stays) {
  open(3, 2);
  const slot_id first = tested_->allocate(6 * group_slots).value();
  fill(first, 6);
  members_[2]->error_code = ECONNREFUSED;
  tend(3000 * ms);
  const result<std::uint64_t> refused = tested_->remove_server("m0", removal::begin);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, EBUSY);
  EXPECT_NE(refused.error().message.find("1 would be left"), std::string::npos) << refused.error().message;
  members_[2]->error_code = 0;
  tend_until_whole();
  EXPECT_EQ(remove("m0").value(), 0u);
  expect_values(first, 6);
}

TEST_F(leaving_members, the_number_of_copies_is_kept_while_a_removed_member_is_lost_on_the_way) {
  constexpr std::uint64_t groups = 8;
  open(4, 2);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  static_cast<void>(tested_->remove_server("m2", removal::begin).value());
  tend(5 * ms);
  members_[2]->forget();
  members_[2]->error_code = ECONNREFUSED;
  tend(3000 * ms);
  EXPECT_EQ(remove("m2").value(), 0u);
  tend_until_whole();
  take_down(0);
  expect_values(first, groups);
}

}  // namespace
}  // namespace far::backend
