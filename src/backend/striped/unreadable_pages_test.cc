// Pages that their servers answer errors for, though they serve: a disk does not return a block, for example.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/striped_tier.h"

namespace far::backend {
namespace {

class unreadable_pages : public striped {
 protected:
  // The page's own server does not return it any more.
  void break_page(slot_id slot) {
    const holder held = holder_of(slot);
    members_[held.member]->unreadable.insert(held.first + tested_->books().table.locate(place_of(slot)).row);
  }
};

// They are on a server that leaves, and are computed for the one that takes its place.
TEST_F(unreadable_pages, are_computed_where_they_cannot_be_copied) {
  open(4, {2, 1});
  const slot_id first = write_new(128);
  const std::size_t leaves = holder_of(first).member;
  for (slot_id slot = first; slot < first + 128; slot += 5) {
    if (holder_of(slot).member == leaves) break_page(slot);
  }
  ASSERT_FALSE(members_[leaves]->unreadable.empty());
  members_[leaves]->is_draining = true;
  tend(5000 * ms);
  EXPECT_EQ(members_[leaves]->used(), 0u);
  expect_all();
}

// The caller compares the bytes with what was written, and says so.
TEST_F(unreadable_pages, are_named_and_written_again_once_others_have_proved_right) {
  open(3, {2, 1});
  const slot_id slot = write_new(64);
  const std::size_t bad = holder_of(slot).member;
  break_page(slot);
  std::vector<std::byte> found(page_bytes);
  std::vector<std::byte> expected(page_bytes);
  fill_page(expected.data(), slot, model_[slot]);
  // As the scrubber does: the others are to be avoided, and are read all the same.
  for (const std::uint64_t avoid : {std::uint64_t{0}, std::uint64_t{1} << (first_decoded_source - 1)}) {
    ASSERT_EQ(
        transfer({.op = operation::read, .slot = slot, .buffer = found.data(), .avoid = avoid, .is_needed = false}), 0);
    EXPECT_TRUE(found == expected);
    EXPECT_EQ(last_.source, first_decoded_source);
    EXPECT_EQ(last_.refused_by, bad + 1);
  }
  EXPECT_TRUE(tested_->is_whole()) << "nobody has looked at the bytes yet";
  tested_->report_damage(slot, last_.refused_by, last_.source, damage::unreadable);
  EXPECT_EQ(tested_->report().damaged_copies, 1u);
  tend_until_whole();
  EXPECT_TRUE(members_[bad]->unreadable.empty());
  ASSERT_EQ(read(slot, found.data()), 0);
  EXPECT_EQ(last_.source, bad + 1);
  EXPECT_EQ(last_.refused_by, 0);
}

// A row of which two pages cannot be read is not to be had, and keeps no other one from being written again.
TEST_F(unreadable_pages, keep_no_other_row_from_being_mended) {
  open(3, {2, 1});
  const slot_id first = write_new(128);
  const holder broken = holder_of(first);
  const located where = tested_->books().table.locate(place_of(first));
  const std::size_t lost = (broken.member + 1) % 3;
  members_[broken.member]->unreadable.insert(broken.first + where.row);
  members_[lost]->forget();
  tend(3000 * ms);
  EXPECT_FALSE(tested_->is_whole());
  EXPECT_EQ(tested_->counted().mended.mended_rows, 63u);
  members_[broken.member]->unreadable.clear();
  tend_until_whole();
  EXPECT_EQ(tested_->counted().mended.mended_rows, 64u);
  expect_all();
}

// Nor does it keep groups from being spread over a server that is added.
TEST_F(unreadable_pages, keep_no_group_from_moving_to_a_new_server) {
  open(3, {2, 1});
  const slot_id first = write_new(64);
  for (int i = 0; i < 20; ++i) static_cast<void>(write_new(64));
  const holder broken = holder_of(first);
  const located where = tested_->books().table.locate(place_of(first));
  members_[broken.member]->unreadable.insert(broken.first + where.row);
  members_[(broken.member + 1) % 3]->forget();
  tend(3000 * ms);
  ASSERT_FALSE(tested_->is_whole());
  ASSERT_TRUE(add().ok());
  tend(10'000 * ms);
  EXPECT_GT(members_[3]->used(), 0u);
  const std::uint64_t reads_before = members_[broken.member]->reads;
  tend(2000 * ms);
  EXPECT_LE(members_[broken.member]->reads - reads_before, 150u) << "it does not walk all the time";
  members_[broken.member]->unreadable.clear();
  tend_until_whole();
  expect_all();
}

// A server whose disk does not return anything is not asked for each row.
TEST_F(unreadable_pages, are_not_asked_for_row_after_row) {
  open(3, {2, 1});
  static_cast<void>(write_new(512));
  for (slot_id slot = 0; slot < 4096; ++slot) members_[0]->unreadable.insert(slot);
  members_[1]->forget();
  tend(1000 * ms);
  const std::uint64_t before = members_[0]->reads;
  tend(2000 * ms);
  EXPECT_LE(members_[0]->reads - before, 150u) << "ten walks";
  EXPECT_GT(members_[0]->reads, before) << "it is tried again";
}

// A disk neither returns the block nor takes it: the place gets another block, on the same server.
TEST_F(unreadable_pages, get_another_place_where_they_cannot_be_written) {
  open(3, {2, 1});
  const slot_id slot = write_new(64);
  const holder broken = holder_of(slot);
  controlled& server = *members_[broken.member];
  for (std::size_t row = 0; row < group_slots; ++row) server.unreadable.insert(broken.first + row);
  server.unwritable = server.unreadable;
  tested_->report_damage(slot, static_cast<std::uint8_t>(broken.member + 1), first_decoded_source, damage::unreadable);
  EXPECT_FALSE(tested_->is_whole());
  tend_until_whole();
  EXPECT_TRUE(server.unwritable.empty());
  take_down((broken.member + 1) % 3);
  expect_all();
}

}  // namespace
}  // namespace far::backend
