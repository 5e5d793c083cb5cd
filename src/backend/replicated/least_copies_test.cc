// Pages that leave local memory only with a minimum number of copies (min-copies=).
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/replicated/replicated_backend.h"
#include "tests/support/controlled_members.h"

namespace far::backend {
namespace {

class least_copies : public replicated_test {
 protected:
  void open_with(std::size_t count, std::size_t copies, std::size_t least) {
    std::vector<std::unique_ptr<backend>> owned;
    for (std::size_t i = 0; i < count; ++i) owned.push_back(make_member());
    replicated_options chosen;
    chosen.copies = copies;
    chosen.least_copies = least;
    chosen.clock = &clock_;
    chosen.lost_after_ns = 1000 * ms;
    tested_ = std::move(replicated_backend::create(std::move(owned), chosen)).value();
    queue_ = tested_->open_channel(16).value();
  }
};

TEST_F(least_copies, are_not_more_than_there_are) {
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{3}}) {
    std::vector<std::unique_ptr<backend>> owned;
    for (int i = 0; i < 3; ++i) owned.push_back(std::make_unique<controlled>("m" + std::to_string(i), 512));
    replicated_options chosen;
    chosen.copies = 2;
    chosen.least_copies = wrong;
    const auto refused = replicated_backend::create(std::move(owned), chosen);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("write min-copies=1 to min-copies=2"), std::string::npos);
  }
}

TEST_F(least_copies, a_write_that_reaches_fewer_servers_fails) {
  open_with(2, 2, 2);
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 1), 0);
  members_[0]->error_code = ETIMEDOUT;  // nobody knows yet
  EXPECT_EQ(write(slot, 2), EIO);
  const std::uint64_t sent = members_[1]->writes;
  EXPECT_EQ(write(slot, 3), EIO);
  EXPECT_EQ(members_[1]->writes, sent) << "once it is known, nothing is sent in vain";
  EXPECT_FALSE(tested_->allocate(group_slots).ok()) << "nobody gets slots that cannot be written";
  tend(200 * ms);
  members_[0]->error_code = 0;
  tend_until_whole();
  EXPECT_EQ(write(slot, 4), 0);
  EXPECT_EQ(read(slot), 4);
  EXPECT_TRUE(tested_->allocate(group_slots).ok());
}

TEST_F(least_copies, with_another_server_the_group_is_written_again_when_it_has_its_copies) {
  open_with(3, 2, 2);
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 1), 0);
  const std::size_t down = holder(slot, 0);
  take_down(down);
  EXPECT_EQ(read(slot), 1);
  for (int i = 0; i < 600 && write(slot, 5) != 0; ++i) tend(10 * ms);
  EXPECT_EQ(read(slot), 5);
  take_down(holder(slot, 0) == down ? holder(slot, 1) : holder(slot, 0));
  EXPECT_EQ(read(slot), 5) << "two servers had it before the write ended";
}

// The copy that is being repaired may get older bytes after the write: it does not count, and the write need not fail.
TEST_F(least_copies, a_write_waits_for_a_repair_of_the_same_slots) {
  open_with(2, 2, 2);
  const slot_id first = tested_->allocate(64).value();
  for (slot_id slot = first; slot < first + 64; ++slot) ASSERT_EQ(write(slot, 1), 0);
  members_[1]->forget();
  tend(ms);
  for (int i = 0; i < 10'000 && tested_->members()[1].groups == 0; ++i) tend(ms);
  for (int i = 0; i < 10'000 && tested_->members()[1].state != member_state::serving; ++i) tend(ms);
  members_[1]->holds_back_writes = true;
  const std::uint64_t writes = members_[1]->writes;
  for (int i = 0; i < 10'000 && members_[1]->writes == writes; ++i) tend(ms);
  ASSERT_GT(members_[1]->writes, writes) << "the repair is under way";
  page_.fill(std::byte{9});
  submit(operation::write, first, page_.data());
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(poll_once(), -1);
    tend(ms);
  }
  members_[1]->holds_back_writes = false;
  tend(100 * ms);
  EXPECT_EQ(finish(), 0);
  take_down(0);
  EXPECT_EQ(read(first), 9);
}

// As when resharding brings two parts of a Redis Cluster together.
TEST_F(least_copies, members_on_one_server_count_once) {
  open_with(3, 2, 2);
  for (std::size_t i = 0; i < 3; ++i) members_[i]->identity = i + 1;
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 1), 0);
  const std::size_t one = holder(slot, 0);
  const std::size_t other = holder(slot, 1);
  members_[one]->identity = members_[other]->identity;
  EXPECT_EQ(write(slot, 2), EIO) << "both copies are on one server";
  for (int i = 0; i < 600 && write(slot, 3) != 0; ++i) tend(10 * ms);
  take_down(one);
  take_down(other);
  EXPECT_EQ(read(slot), 3) << "the third server had it before the write ended";
}

// They came together while the write was under way.
TEST_F(least_copies, servers_are_counted_when_a_write_has_ended) {
  open_with(2, 2, 2);
  for (std::size_t i = 0; i < 2; ++i) members_[i]->identity = i + 1;
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 1), 0);
  for (controlled* const member : members_) member->holds_back_writes = true;
  page_.fill(std::byte{2});
  submit(operation::write, slot, page_.data());
  EXPECT_EQ(poll_once(), -1);
  members_[0]->identity = members_[1]->identity;
  for (controlled* const member : members_) member->holds_back_writes = false;
  EXPECT_EQ(finish(), EIO);
}

TEST_F(least_copies, one_is_enough_unless_somebody_asks_for_more) {
  open(2, 2);
  take_down(0);
  const slot_id slot = tested_->allocate(1).value();
  EXPECT_EQ(write(slot, 7), 0);
}

}  // namespace
}  // namespace far::backend
