// A copy that is not needed any more becomes the only one that has some bytes, while it is being let go of.
#include <gtest/gtest.h>

#include "tests/support/controlled_members.h"

namespace far::backend {
namespace {

class drop_race : public replicated_test {
 protected:
  static constexpr slot_id slot = 100;  // beyond the first window of a repair
  static constexpr std::size_t slots = 128;

  // Brings a group to the moment in which its third copy is being let go of, and waits for the program's write of 2 to
  // `slot`, which was sent to all three. Returns the member of that copy.
  std::size_t begin_to_drop_a_third_copy() {
    open(3, 2);
    EXPECT_EQ(tested_->allocate(slots).value(), 0u);
    EXPECT_EQ(write(0, 1), 0);
    EXPECT_EQ(write(slot, 1), 0);
    const std::size_t away = holder(0, 0);
    third_ = 3 - away - holder(0, 1);
    members_[third_]->holds_back_writes = true;  // it is given a copy, and that stays empty
    take_down(away);
    members_[away]->error_code = 0;
    tend(500 * ms);
    EXPECT_NE(place_of(third_), maximum_places) << "a copy was made for the one that was lost";
    EXPECT_EQ(tested_->members()[away].state, member_state::serving);
    page_.fill(std::byte{2});
    submit(operation::write, slot, page_.data());
    members_[third_]->holds_back_writes = false;  // of the repair; the program's write runs when it is polled
    tend(500 * ms);
    EXPECT_TRUE(is_leaving()) << "three copies are one too many";
    return third_;
  }

  // Where the group's copy on that member is, or maximum_places.
  std::size_t place_of(std::size_t member) {
    const group& seen = tested_->books().group_at(0);
    for (std::size_t place = 0; place < maximum_places; ++place) {
      if (seen.copies[place].present && seen.copies[place].member == member) return place;
    }
    return maximum_places;
  }
  bool is_leaving() {
    const std::size_t place = place_of(third_);
    return place != maximum_places && tested_->books().group_at(0).copies[place].leaving;
  }

  // The write fails on all members but this one.
  void finish_write_only_on(std::size_t member) {
    for (std::size_t i = 0; i < members_.size(); ++i) members_[i]->error_code = i == member ? 0 : EIO;
    EXPECT_EQ(finish(), 0) << "one copy has it";
    for (controlled* server : members_) server->error_code = 0;
  }

 private:
  std::size_t third_ = 0;
};

TEST_F(drop_race, a_copy_that_alone_got_a_write_stays) {
  const std::size_t third = begin_to_drop_a_third_copy();
  finish_write_only_on(third);
  tend(500 * ms);
  EXPECT_EQ(read(slot), 2);
  tend_until_whole();
  EXPECT_EQ(read(slot), 2);
  EXPECT_EQ(read(0), 1);
}

TEST_F(drop_race, so_does_one_whose_member_does_not_answer_then) {
  const std::size_t third = begin_to_drop_a_third_copy();
  members_[third]->error_code = ETIMEDOUT;
  tend(1500 * ms);  // a probe finds out
  ASSERT_NE(tested_->members()[third].state, member_state::serving);
  finish_write_only_on(third);
  members_[third]->error_code = ETIMEDOUT;
  tend(20 * ms);  // all transfers have ended: it is looked at again
  members_[third]->error_code = 0;
  tend(500 * ms);
  EXPECT_EQ(read(slot), 2);
  tend_until_whole();
  EXPECT_EQ(read(slot), 2);
  EXPECT_EQ(read(0), 1);
}

TEST_F(drop_race, one_that_is_not_needed_goes) {
  const std::size_t third = begin_to_drop_a_third_copy();
  EXPECT_EQ(finish(), 0);
  tend_until_whole();
  EXPECT_EQ(place_of(third), maximum_places);
  EXPECT_EQ(members_[third]->used(), 0u);
  EXPECT_EQ(read(slot), 2);
}

}  // namespace
}  // namespace far::backend
