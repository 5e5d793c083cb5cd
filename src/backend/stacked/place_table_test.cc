#include "backend/stacked/place_table.h"

#include <gtest/gtest.h>

namespace far::backend {
namespace {

using moved = place_table::moved;

class places : public ::testing::Test {
 protected:
  // Written, and cold.
  void settle(slot_id slot, slot_id place) {
    tested_.set_fresh(slot, {0, place});
    use(slot, operation::write);
    EXPECT_FALSE(tested_.begin_move(slot).has_value()) << "it was just written";
  }

  void use(slot_id slot, operation op) {
    EXPECT_TRUE(tested_.pin(slot, op).has_value());
    EXPECT_FALSE(tested_.unpin(slot).has_value());
  }

  tier_place where(slot_id slot) {
    const tier_place found = tested_.pin(slot, operation::read).value();
    EXPECT_FALSE(tested_.unpin(slot).has_value());
    return found;
  }

  place_table tested_{16};
};

TEST_F(places, a_cold_slot_moves) {
  settle(3, 7);
  EXPECT_EQ(tested_.begin_move(3), 7u);
  EXPECT_FALSE(tested_.begin_move(3).has_value()) << "it is moving already";
  EXPECT_EQ(where(3).tier, 0u);
  EXPECT_EQ(tested_.finish_move(3, 9), moved::done);
  EXPECT_EQ(where(3).tier, 1u);
  EXPECT_EQ(where(3).slot, 9u);
  EXPECT_FALSE(tested_.begin_move(3).has_value()) << "there is no tier behind the next one";
  EXPECT_EQ(tested_.release(3)->slot, 9u);
}

TEST_F(places, what_is_not_written_or_used_now_stays) {
  tested_.set_fresh(1, {0, 1});
  EXPECT_FALSE(tested_.begin_move(1).has_value());
  EXPECT_FALSE(tested_.begin_move(1).has_value()) << "nothing was written to it";
  settle(2, 2);
  static_cast<void>(tested_.pin(2, operation::read));
  EXPECT_FALSE(tested_.begin_move(2).has_value());
  EXPECT_FALSE(tested_.begin_move(2).has_value()) << "a read is under way";
  EXPECT_FALSE(tested_.unpin(2).has_value());
  EXPECT_FALSE(tested_.begin_move(2).has_value()) << "it was just read";
  EXPECT_TRUE(tested_.begin_move(2).has_value());
}

TEST_F(places, a_slot_that_is_read_meanwhile_moves_after_the_read) {
  settle(0, 1);
  EXPECT_TRUE(tested_.begin_move(0).has_value());
  EXPECT_EQ(tested_.pin(0, operation::read)->tier, 0u);
  EXPECT_EQ(tested_.finish_move(0, 5), moved::is_busy);
  EXPECT_FALSE(tested_.unpin(0).has_value());
  EXPECT_EQ(tested_.finish_move(0, 5), moved::done);
}

TEST_F(places, a_slot_that_is_freed_while_it_is_read_lives_until_then) {
  settle(0, 1);
  EXPECT_TRUE(tested_.pin(0, operation::read).has_value());
  EXPECT_TRUE(tested_.pin(0, operation::read).has_value());
  EXPECT_FALSE(tested_.release(0).has_value());
  EXPECT_FALSE(tested_.pin(0, operation::read).has_value()) << "it is not allocated any more";
  EXPECT_FALSE(tested_.unpin(0).has_value());
  EXPECT_EQ(tested_.unpin(0)->slot, 1u);

  settle(0, 2);
  EXPECT_TRUE(tested_.begin_move(0).has_value());
  EXPECT_TRUE(tested_.pin(0, operation::read).has_value());
  EXPECT_FALSE(tested_.release(0).has_value());
  EXPECT_EQ(tested_.finish_move(0, 5), moved::stays) << "the read frees it";
  EXPECT_EQ(tested_.unpin(0)->slot, 2u);
}

TEST_F(places, a_slot_that_is_written_meanwhile_stays) {
  settle(0, 1);
  EXPECT_TRUE(tested_.begin_move(0).has_value());
  use(0, operation::write);
  EXPECT_EQ(tested_.finish_move(0, 5), moved::stays);
  EXPECT_EQ(where(0).tier, 0u);
  EXPECT_EQ(where(0).slot, 1u);
}

TEST_F(places, a_slot_that_is_freed_meanwhile_is_its_movers) {
  settle(0, 1);
  EXPECT_TRUE(tested_.begin_move(0).has_value());
  EXPECT_FALSE(tested_.release(0).has_value());
  EXPECT_EQ(tested_.finish_move(0, 5), moved::died);
  settle(0, 2);
  EXPECT_TRUE(tested_.begin_move(0).has_value());
  EXPECT_FALSE(tested_.release(0).has_value());
  EXPECT_EQ(tested_.abandon_move(0), moved::died);
  settle(0, 3);
  EXPECT_TRUE(tested_.begin_move(0).has_value());
  EXPECT_EQ(tested_.abandon_move(0), moved::stays);
  EXPECT_EQ(tested_.release(0)->slot, 3u);
}

TEST_F(places, in_a_child_nothing_moves) {
  settle(0, 1);
  settle(1, 2);
  settle(2, 3);
  for (const slot_id slot : {0, 1, 2}) EXPECT_TRUE(tested_.begin_move(slot).has_value());
  static_cast<void>(tested_.pin(1, operation::read));
  EXPECT_FALSE(tested_.release(2).has_value());
  tested_.begin_again_in_child(16);
  EXPECT_EQ(tested_.claim_in_child(0).slot, 1u);
  EXPECT_EQ(tested_.claim_in_child(1).slot, 2u);
  tested_.end_claims_in_child(16);
  for (const slot_id slot : {0, 1}) EXPECT_EQ(tested_.release(slot)->slot, slot + 1);
  tested_.set_fresh(2, {1, 4});
  EXPECT_EQ(where(2).slot, 4u);
}

}  // namespace
}  // namespace far::backend
