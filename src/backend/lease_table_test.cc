#include "backend/lease_table.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace far::backend {
namespace {

using wire::block_slots;

TEST(lease_table, slots_are_there_from_grant_to_take_out) {
  lease_table leases(4 * block_slots, 4);
  EXPECT_FALSE(leases.slots().allocate(1));
  leases.grant(0);
  const std::optional<slot_id> one = leases.slots().allocate(1);
  ASSERT_TRUE(one);
  EXPECT_EQ(leases.used(), 1U);
  EXPECT_FALSE(leases.take_out(0)) << "one of its slots is in use";
  leases.slots().free(*one, 1);
  EXPECT_TRUE(leases.take_out(0));
  EXPECT_FALSE(leases.take_out(0)) << "it is out";
  EXPECT_FALSE(leases.slots().allocate(1));
  EXPECT_EQ(leases.used(), 0U);
  EXPECT_EQ(leases.unowned_slots(), block_slots);
  leases.grant(0);
  EXPECT_EQ(leases.unowned_slots(), 0U);
  EXPECT_TRUE(leases.slots().allocate(block_slots));
  leases.validate();
}

TEST(lease_table, blocks_that_follow_make_longer_runs) {
  lease_table leases(4 * block_slots, 4);
  leases.grant(0);
  leases.grant(1);
  EXPECT_EQ(leases.slots().allocate(2 * block_slots), slot_id{0});
  leases.validate();
}

TEST(lease_table, the_last_block_is_used_up_to_the_capacity_and_those_behind_it_as_a_whole) {
  lease_table leases(block_slots + 100, 4);
  EXPECT_EQ(leases.capacity_blocks(), 2U);
  EXPECT_EQ(leases.usable_slots(1), 100U);
  EXPECT_EQ(leases.usable_slots(2), block_slots);
  for (std::uint64_t block = 0; block < 3; ++block) leases.grant(block);
  EXPECT_EQ(leases.unowned_slots(), block_slots - 100) << "the end of the block where the capacity ends";
  EXPECT_EQ(leases.used(), 0U);
  EXPECT_TRUE(leases.take_out(1));
  EXPECT_EQ(leases.unowned_slots(), block_slots);
  leases.grant(1);
  leases.validate();
}

TEST(lease_table, a_lost_block_serves_nobody_and_is_forgotten_slot_by_slot) {
  lease_table leases(4 * block_slots, 8);
  leases.grant(0);
  // Every third slot stays in use, so that what is free lies in pieces.
  std::vector<slot_id> kept;
  for (slot_id slot = 0; slot < block_slots; ++slot) ASSERT_TRUE(leases.slots().allocate(1));
  for (slot_id slot = 0; slot < block_slots; ++slot) {
    if (slot % 3 == 0) {
      kept.push_back(slot);
    } else {
      leases.slots().free(slot, 1);
    }
  }
  leases.write_off(0);
  EXPECT_FALSE(leases.slots().allocate(1));
  EXPECT_EQ(leases.used(), kept.size());
  for (std::size_t left = kept.size(); left > 0; --left) {
    leases.forget(1);
    EXPECT_EQ(leases.used(), left - 1);
  }
  EXPECT_EQ(leases.unowned_slots(), block_slots);
  leases.grant(0);
  EXPECT_TRUE(leases.slots().allocate(block_slots));
  leases.validate();
}

TEST(lease_table, a_block_that_is_skipped_is_nobodys) {
  lease_table leases(4 * block_slots, 4);
  leases.skip(0);
  leases.skip(0);
  leases.grant(1);
  EXPECT_EQ(leases.slots().allocate(block_slots), slot_id{block_slots});
  EXPECT_EQ(leases.unowned_slots(), block_slots);
  leases.grant(0);
  EXPECT_EQ(leases.slots().allocate(block_slots), slot_id{0});
  leases.validate();
}

TEST(lease_table, the_capacity_may_be_lowered_before_the_first_block) {
  lease_table leases(4 * block_slots, 8);
  leases.limit_capacity(block_slots);
  EXPECT_EQ(leases.capacity_slots(), block_slots);
  EXPECT_EQ(leases.capacity_blocks(), 1U);
}

}  // namespace
}  // namespace far::backend
