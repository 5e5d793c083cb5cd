#include "backend/replicated/group.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "backend/replicated/member.h"

namespace far::backend {
namespace {

TEST(slot_set, ranges_and_runs) {
  EXPECT_TRUE(slot_set().empty());
  EXPECT_TRUE(slot_set::range(17, 0).empty());
  EXPECT_EQ(slot_set::everything().size(), group_slots);
  for (const std::size_t first : {0u, 1u, 63u, 64u, 100u, 511u}) {
    for (const std::size_t count : {1u, 2u, 63u, 64u, 65u, 200u, 412u}) {
      if (first + count > group_slots) continue;
      const slot_set set = slot_set::range(first, count);
      EXPECT_EQ(set.size(), count);
      EXPECT_EQ(set.next(0), first);
      EXPECT_EQ(set.run_from(first), count);
      EXPECT_EQ(set.next(first + count), group_slots);
      EXPECT_EQ((~set).size(), group_slots - count);
      EXPECT_EQ(set.contains(first + count - 1), true);
      EXPECT_EQ(first > 0 && set.contains(first - 1), false);
    }
  }
  const slot_set two = slot_set::range(3, 4) | slot_set::range(300, 2);
  EXPECT_EQ(two.next(7), 300u);
  EXPECT_EQ((two - slot_set::range(0, 100)).size(), 2u);
  EXPECT_EQ(two & slot_set::range(0, 100), slot_set::range(3, 4));
}

class idle_store final : public backend {
 public:
  result<slot_id> allocate(std::size_t /*count*/) override { return out_of_room(); }
  void free(slot_id /*first*/, std::size_t /*count*/) override {}
  result<std::unique_ptr<channel>> open_channel(std::size_t /*depth*/) override { return out_of_room(); }
  capacity report() const override { return {}; }
  speed expected_speed() const override { return {}; }
  std::string describe() const override { return "idle"; }

 private:
  static error out_of_room() { return {"no room", ENOSPC}; }
};

constexpr byte_range slots(std::uint32_t first, std::uint32_t count) {
  return {first * static_cast<std::uint32_t>(page_bytes), (first + count) * static_cast<std::uint32_t>(page_bytes)};
}

// A group with copies on members 0 and 1 of three.
class group_test : public testing::Test {
 protected:
  group_test() {
    for (int i = 0; i < 3; ++i) {
      members_.push_back(std::make_unique<member>(std::make_unique<idle_store>(), std::to_string(i)));
      view_.push_back(members_.back().get());
    }
    tested_.placed = true;
    tested_.copies[0] = {.present = true, .leaving = false, .member = 0, .first = 1000, .missing = {}};
    tested_.copies[1] = {.present = true, .leaving = false, .member = 1, .first = 5000, .missing = {}};
    tested_.own(slot_set::range(0, 100));
  }

  bool write(byte_range bytes, place_mask succeeded) {
    const started_write begun = tested_.begin_write(view_, bytes);
    return begun.places != 0 && tested_.end_write(view_, begun, bytes, succeeded).is_safe;
  }
  started_read read(byte_range bytes, place_mask tried = 0) {
    const started_read begun = tested_.begin_read(view_, bytes, {.tried = tried, .costs = costs_});
    if (begun.how == started_read::outcome::served) tested_.end(begun.phase);
    return begun;
  }

  std::vector<std::unique_ptr<member>> members_;
  std::vector<const member*> view_;
  std::vector<std::uint64_t> costs_{10, 20, 30};
  group tested_;
};

TEST_F(group_test, the_cheapest_current_copy_is_read) {
  EXPECT_EQ(read(slots(3, 2)).member, 0);
  EXPECT_EQ(read(slots(3, 2)).first, 1000u);
  costs_ = {20, 10, 30};
  EXPECT_EQ(read(slots(3, 2)).member, 1);
  EXPECT_EQ(read(slots(3, 2), 2).member, 0) << "the other was tried";
  EXPECT_EQ(read(slots(3, 2), 3).how, started_read::outcome::gone);
}

TEST_F(group_test, a_copy_that_missed_a_write_is_not_read_until_it_gets_one) {
  ASSERT_TRUE(write(slots(10, 4), 0b10));
  EXPECT_EQ(read(slots(10, 4)).member, 1);
  EXPECT_EQ(read(slots(13, 1)).member, 1);
  EXPECT_EQ(read(slots(14, 1)).member, 0);
  EXPECT_EQ(read(slots(10, 4), 0b10).how, started_read::outcome::gone);
  const byte_range part{12 * page_bytes, 12 * page_bytes + 100};
  ASSERT_TRUE(write(part, 0b11));
  EXPECT_EQ(read(slots(12, 1)).member, 1) << "a part of a slot does not make it current";
  ASSERT_TRUE(write(slots(12, 1), 0b11));
  EXPECT_EQ(read(slots(12, 1)).member, 0);
}

// The thread that sent it may be late in taking note of its end.
TEST_F(group_test, a_write_whose_only_success_was_on_a_member_that_has_forgotten_it_fails) {
  const started_write late = tested_.begin_write(view_, slots(10, 4));
  static_cast<void>(members_[1]->note_error(ESTALE));
  EXPECT_FALSE(tested_.end_write(view_, late, slots(10, 4), 0b10).is_safe);
}

TEST_F(group_test, a_write_that_reaches_only_what_is_stale_fails) {
  ASSERT_TRUE(write(slots(10, 1), 0b10));
  const byte_range part{10 * page_bytes, 10 * page_bytes + 100};
  EXPECT_FALSE(write(part, 0b01)) << "the rest of the slot would be nowhere";
  EXPECT_FALSE(write(slots(10, 2), 0)) << "no copy has it";
}

TEST_F(group_test, a_read_takes_what_one_copy_has_and_comes_back_for_the_rest) {
  ASSERT_TRUE(write(slots(10, 2), 0b10));
  ASSERT_TRUE(write(slots(12, 2), 0b01));
  const started_read begun = read(slots(10, 4));
  EXPECT_EQ(begun.member, 1);
  EXPECT_EQ(begun.end, 12 * page_bytes);
}

TEST_F(group_test, only_serving_members_are_used) {
  static_cast<void>(members_[0]->note_error(ETIMEDOUT));
  EXPECT_EQ(read(slots(0, 1)).member, 1);
  EXPECT_EQ(tested_.begin_write(view_, slots(0, 1)).places, 0b10);
  static_cast<void>(members_[1]->note_error(ETIMEDOUT));
  EXPECT_EQ(read(slots(0, 1)).how, started_read::outcome::waits);
  EXPECT_EQ(tested_.begin_write(view_, slots(0, 1)).places, 0);
  static_cast<void>(members_[0]->note_error(ESTALE));
  static_cast<void>(members_[1]->note_error(ESTALE));
  EXPECT_EQ(read(slots(0, 1)).how, started_read::outcome::gone);
}

TEST_F(group_test, a_repair_waits_for_the_writes_that_began_before_it) {
  const started_write before = tested_.begin_write(view_, slots(0, 1));
  bool turned = false;
  EXPECT_FALSE(tested_.drained(&turned));
  const started_write later = tested_.begin_write(view_, slots(5, 1));
  EXPECT_FALSE(tested_.drained(&turned));
  EXPECT_TRUE(tested_.end_write(view_, before, slots(0, 1), 0b11).is_safe);
  EXPECT_TRUE(tested_.drained(&turned)) << "it does not wait for what began later";
  bool again = false;
  EXPECT_FALSE(tested_.drained(&again)) << "but the next one does";
  EXPECT_TRUE(tested_.end_write(view_, later, slots(5, 1), 0b11).is_safe);
  EXPECT_TRUE(tested_.drained(&again));
}

TEST_F(group_test, a_write_beside_a_repair_does_not_make_its_target_current) {
  ASSERT_TRUE(write(slots(10, 4), 0b01));
  repair_window window;
  window.target = 1;
  window.slots = slot_set::range(10, 64);
  tested_.open_window(&window);
  const started_write beside = tested_.begin_write(view_, slots(11, 1));
  EXPECT_TRUE(window.touched.contains(11));
  tested_.close_window();
  EXPECT_TRUE(tested_.end_write(view_, beside, slots(11, 1), 0b11).leaves_stale);
  EXPECT_TRUE(tested_.stale(1).contains(11)) << "the repair may have overwritten it";
  ASSERT_TRUE(write(slots(11, 1), 0b11));
  EXPECT_FALSE(tested_.stale(1).contains(11));
}

TEST_F(group_test, a_new_owner_of_a_slot_misses_nothing_unless_a_repair_may_still_write_there) {
  ASSERT_TRUE(write(slots(10, 4), 0b01));
  repair_window window;
  window.target = 1;
  window.slots = slot_set::range(12, 64);
  tested_.open_window(&window);
  tested_.own(slot_set::range(10, 4));
  EXPECT_EQ(tested_.copies[1].missing, slot_set::range(12, 2));
  EXPECT_TRUE(window.touched.contains(12));
}

TEST(member, goes_back_to_serving_only_after_a_probe_that_saw_the_last_error) {
  member tested(std::make_unique<idle_store>(), "m");
  EXPECT_FALSE(tested.note_error(EIO)) << "it answered";
  EXPECT_TRUE(tested.serves());
  EXPECT_TRUE(tested.note_error(ETIMEDOUT));
  const member::health probed = tested.now();
  EXPECT_EQ(probed.state, member_state::suspect);
  EXPECT_FALSE(tested.note_error(ECONNRESET));
  EXPECT_FALSE(tested.change(probed, member_state::serving));
  EXPECT_TRUE(tested.change(tested.now(), member_state::serving));
  EXPECT_TRUE(tested.note_error(ESTALE));
  EXPECT_EQ(tested.state(), member_state::emptied);
  EXPECT_FALSE(tested.note_error(ETIMEDOUT));
  EXPECT_EQ(tested.state(), member_state::emptied) << "what it held stays gone";
}

}  // namespace
}  // namespace far::backend
