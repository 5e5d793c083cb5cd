// Copies that answer errors though their servers serve: a disk does not return a block, for example.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/controlled_members.h"

namespace far::backend {
namespace {

class unreadable_copies : public replicated_test {
 protected:
  // Slots of a whole group, with values.
  slot_id fill_group() {
    const slot_id first = tested_->allocate(group_slots).value();
    for (slot_id slot = first; slot < first + group_slots; ++slot) EXPECT_EQ(write(slot, value_of(slot)), 0);
    return first;
  }
  static int value_of(slot_id slot) { return static_cast<int>(slot % 199); }
  void expect_group(slot_id first) {
    for (slot_id slot = first; slot < first + group_slots; ++slot) ASSERT_EQ(read(slot), value_of(slot)) << slot;
  }
  [[nodiscard]] const copy& copy_at(slot_id slot, std::size_t place) const {
    return tested_->books().group_at(slot / group_slots).copies[place];
  }
  // The copy in this place does not return these slots any more.
  void break_copy(slot_id slot, std::size_t place, std::size_t count = 1) {
    for (slot_id broken = slot; broken < slot + count; ++broken) {
      members_[holder(slot, place)]->unreadable.insert(copy_at(slot, place).first + broken % group_slots);
    }
  }
  // Nor does it take any.
  void break_block(slot_id first, std::size_t place) {
    break_copy(first, place, group_slots);
    controlled& server = *members_[holder(first, place)];
    server.unwritable = server.unreadable;
  }
  // As the scrubber does.
  completion read_avoiding(std::uint8_t source, slot_id slot) {
    const request one{.op = operation::read,
                      .slot = slot,
                      .buffer = page_.data(),
                      .avoid = std::uint64_t{1} << (source - 1),
                      .is_needed = false};
    EXPECT_EQ(queue_->submit({&one, 1}), 1u);
    completion done;
    while (queue_->poll({&done, 1}) == 0) {
    }
    EXPECT_EQ(static_cast<int>(page_[7]), value_of(slot));
    return done;
  }
  void wait_until_empty(std::size_t index) {
    for (int i = 0; i < 100 && tested_->members()[index].groups > 0; ++i) tend(100 * ms);
    EXPECT_EQ(tested_->members()[index].groups, 0u);
  }
};

// The copy that cannot be read lies where the repairer looks first.
TEST_F(unreadable_copies, are_no_source_of_a_repair_that_has_another) {
  open(3, 2);
  const slot_id first = fill_group();
  break_copy(first, 0, group_slots);
  const std::size_t leaves = holder(first, 1);
  members_[leaves]->is_draining = true;
  wait_until_empty(leaves);
  for (std::size_t place = 0; place < maximum_places; ++place) {
    if (copy_at(first, place).present) members_[holder(first, place)]->unreadable.clear();
  }
  expect_group(first);
}

// Of the only copy that there is: what can be read of it is copied all the same.
TEST_F(unreadable_copies, give_to_others_what_can_be_read_of_them) {
  open(2, 2);
  const slot_id first = fill_group();
  const std::size_t filled = holder(first, 1);
  for (const std::size_t slot : {0u, 7u, 63u, 64u, 200u, 201u, 511u}) break_copy(first + slot, 0);
  members_[filled]->forget();
  tend(5000 * ms);
  std::size_t place = 0;
  while (!copy_at(first, place).present || holder(first, place) != filled) ASSERT_LT(++place, maximum_places);
  EXPECT_EQ(copy_at(first, place).missing.size(), 7u);
  EXPECT_FALSE(tested_->is_whole());
  EXPECT_EQ(tested_->report().lacking_copies, 7u);
  members_[1 - filled]->unreadable.clear();
  tend_until_whole();
  take_down(1 - filled);
  expect_group(first);
}

// A server whose disk does not return anything is not asked for each page.
TEST_F(unreadable_copies, are_not_asked_for_page_after_page) {
  open(2, 2);
  const slot_id first = fill_group();
  const std::size_t filled = holder(first, 1);
  break_copy(first, 0, group_slots);
  members_[filled]->forget();
  tend(1000 * ms);
  const std::uint64_t before = members_[1 - filled]->reads;
  tend(2000 * ms);
  EXPECT_LE(members_[1 - filled]->reads - before, 150u) << "ten walks";
  EXPECT_GT(members_[1 - filled]->reads, before) << "it is tried again";
}

// The caller compares the bytes with what was written, and says so.
TEST_F(unreadable_copies, are_named_and_written_again_once_another_has_proved_right) {
  open(2, 2);
  const slot_id first = fill_group();
  const slot_id slot = first + 20;
  break_copy(slot, 0, 4);
  const auto bad = static_cast<std::uint8_t>(holder(first, 0) + 1);
  const auto good = static_cast<std::uint8_t>(holder(first, 1) + 1);
  // The other copy is the one to be avoided, and is read all the same.
  const completion found = read_avoiding(good, slot);
  EXPECT_EQ(found.error_code, 0);
  EXPECT_EQ(found.source, good);
  EXPECT_EQ(found.refused_by, bad);
  EXPECT_TRUE(tested_->is_whole()) << "nobody has looked at the bytes yet";
  tested_->report_damage(slot, bad, good, damage::unreadable);
  EXPECT_FALSE(tested_->is_whole());
  EXPECT_EQ(tested_->report().damaged_copies, 1u);
  EXPECT_EQ(read_avoiding(good, slot).refused_by, 0) << "it is not asked any more";
  tend_until_whole();
  EXPECT_EQ(members_[bad - 1u]->unreadable.size(), 3u);
  EXPECT_EQ(tested_->repaired().repaired_slots, 1u);
  members_[bad - 1u]->unreadable.clear();
  take_down(good - 1u);
  expect_group(first);
}

// What one copy refuses, the other must not lose.
TEST_F(unreadable_copies, are_kept_when_there_is_no_other) {
  open(2, 2);
  const slot_id first = fill_group();
  for (const std::size_t place : {0u, 1u}) break_copy(first, place, group_slots);
  EXPECT_EQ(read(first), -1);
  tend(2000 * ms);
  EXPECT_EQ(read(first), -1);
  EXPECT_EQ(tested_->repaired().removed_copies, 0u);
  for (controlled* member : members_) member->unreadable.clear();
  expect_group(first);
}

// A report comes late: what is right has moved away or forgotten everything meanwhile.
TEST_F(unreadable_copies, are_kept_when_what_was_right_has_gone) {
  open(2, 2);
  const slot_id first = fill_group();
  const auto bad = static_cast<std::uint8_t>(holder(first, 0) + 1);
  const auto good = static_cast<std::uint8_t>(holder(first, 1) + 1);
  members_[good - 1u]->error_code = ETIMEDOUT;
  tend(100 * ms);
  tested_->report_damage(first, bad, good, damage::unreadable);
  EXPECT_EQ(read(first), value_of(first));
  EXPECT_EQ(tested_->report().damaged_copies, 0u);
}

// Its disk neither returns the block nor takes it: the copy gets another block, on the same server.
TEST_F(unreadable_copies, are_made_anew_where_they_cannot_be_written) {
  open(2, 2);
  const slot_id first = fill_group();
  break_block(first, 0);
  const auto bad = static_cast<std::uint8_t>(holder(first, 0) + 1);
  const auto good = static_cast<std::uint8_t>(holder(first, 1) + 1);
  tested_->report_damage(first + 5, bad, good, damage::unreadable);
  tend(150 * ms);
  EXPECT_EQ(tested_->repaired().removed_copies, 0u) << "once may be chance";
  tend_until_whole();
  EXPECT_EQ(tested_->repaired().removed_copies, 1u);
  EXPECT_EQ(tested_->repaired().repaired_slots, group_slots);
  EXPECT_TRUE(members_[bad - 1u]->unwritable.empty());
  take_down(good - 1u);
  expect_group(first);
}

// A server that returns what it has, and takes nothing, keeps it.
TEST_F(unreadable_copies, that_can_be_read_are_kept_though_they_cannot_be_written) {
  open(2, 2);
  const slot_id first = fill_group();
  break_block(first, 0);
  const std::size_t bad = holder(first, 0);
  members_[bad]->unreadable.clear();
  ASSERT_EQ(write(first + 9, 77), 0);
  tend(5000 * ms);
  EXPECT_EQ(tested_->repaired().removed_copies, 0u);
  EXPECT_EQ(tested_->report().lacking_copies, 1u);
  take_down(holder(first, 1));
  EXPECT_EQ(read(first), value_of(first));
}

// It is the only one that has a page: it stays, whatever it refuses.
TEST_F(unreadable_copies, are_not_made_anew_while_they_alone_have_a_page) {
  open(2, 2);
  const slot_id first = fill_group();
  const std::size_t bad = holder(first, 0);
  const std::size_t good = holder(first, 1);
  members_[good]->error_code = EIO;
  ASSERT_EQ(write(first + 300, 88), 0);
  members_[good]->error_code = 0;
  break_block(first, 0);
  ASSERT_EQ(write(first + 9, 77), 0);
  tend(5000 * ms);
  EXPECT_EQ(tested_->repaired().removed_copies, 0u);
  members_[bad]->unreadable.clear();
  EXPECT_EQ(read(first + 300), 88);
}

// Both copies of what moves refuse something: what can be had from either moves, and no more is let go of.
TEST_F(unreadable_copies, make_up_for_each_other_where_they_refuse_different_pages) {
  open(3, 2);
  const slot_id first = fill_group();
  for (std::size_t slot = 0; slot < group_slots; ++slot) break_copy(first + slot, slot / 3 % 2);
  const std::size_t leaves = holder(first, 1);
  members_[leaves]->is_draining = true;
  wait_until_empty(leaves);
  for (controlled* member : members_) member->unreadable.clear();
  expect_group(first);
}

}  // namespace
}  // namespace far::backend
