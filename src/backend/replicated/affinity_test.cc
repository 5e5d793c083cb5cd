// Slots that are asked for with an affinity.
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "backend/replicated/replicated_backend.h"
#include "tests/support/controlled_members.h"

namespace far::backend {
namespace {

class slots_with_affinity : public replicated_test {
 protected:
  // Some of every affinity, one after the other, as pages of several columns leave.
  void allocate_some(unsigned rounds, std::size_t count) {
    for (unsigned round = 0; round < rounds; ++round) {
      for (unsigned with = 1; with <= some_affinities; ++with) {
        const result<slot_id> first = tested_->allocate_near(static_cast<affinity>(with), count);
        ASSERT_TRUE(first.ok()) << first.error().message;
        firsts_[with].push_back(first.value());
      }
    }
  }
  [[nodiscard]] std::set<int> members_of(slot_id slot) const {
    std::set<int> found;
    for (const copy& one : tested_->books().group_at(slot / group_slots).copies) {
      if (one.present) found.insert(one.member);
    }
    return found;
  }
  void expect_together() {
    std::map<std::set<int>, unsigned> affinities_on;
    for (const auto& [with, firsts] : firsts_) {
      for (const slot_id first : firsts) ASSERT_EQ(members_of(first), members_of(firsts.front())) << with;
      ++affinities_on[members_of(firsts.front())];
    }
    EXPECT_GT(affinities_on.size(), 1u);
  }

  static constexpr unsigned some_affinities = 8;
  static constexpr std::uint64_t slots_of_member = 16 * group_slots;
  std::map<unsigned, std::vector<slot_id>> firsts_;
};

TEST_F(slots_with_affinity, lie_on_the_same_members) {
  for (const std::size_t copies : {1u, 2u}) {
    open(3, copies, slots_of_member);
    firsts_.clear();
    allocate_some(5, 64);
    allocate_some(1, group_slots);
    expect_together();
    for (const auto& status : tested_->members()) {
      EXPECT_GT(status.groups, 0u) << status.name << ": affinities are spread";
    }
    members_.clear();
  }
}

TEST_F(slots_with_affinity, fill_their_groups_and_give_them_back) {
  open(3, 1, slots_of_member);
  allocate_some(1, 16);
  for (unsigned i = 1; i < group_slots / 16; ++i) {
    const slot_id first = tested_->allocate_near(7, 16).value();
    EXPECT_EQ(first / group_slots, firsts_[7].front() / group_slots);
    firsts_[7].push_back(first);
  }
  EXPECT_NE(tested_->allocate_near(7, 16).value() / group_slots, firsts_[7].front() / group_slots) << "it is full";
  tested_->free(firsts_[7].front(), 16);
  firsts_[7].erase(firsts_[7].begin());
  for (const auto& [with, firsts] : firsts_) {
    for (const slot_id first : firsts) tested_->free(first, 16);
  }
  EXPECT_EQ(tested_->report().used_slots, 16u);
  std::uint64_t kept = 0;
  for (const controlled* member : members_) kept += member->used();
  EXPECT_LE(kept, 5 * group_slots) << "only a reserve stays";
  tested_->validate();
  // The numbers of groups that were given back are used for others, with another affinity or none.
  for (unsigned with = 0; with <= some_affinities; ++with) {
    ASSERT_TRUE(tested_->allocate_near(static_cast<affinity>(with), group_slots).ok());
  }
}

TEST_F(slots_with_affinity, stay_together_when_members_come_and_go) {
  open(2, 1, 2 * slots_of_member);
  allocate_some(2, 300);
  for (const auto& [with, firsts] : firsts_) {
    for (const slot_id first : firsts) ASSERT_EQ(write(first + with, static_cast<int>(with)), 0);
  }
  ASSERT_TRUE(add(2 * slots_of_member).ok());
  tend_until_whole();
  expect_together();
  EXPECT_GT(tested_->members()[2].groups, 2u) << "some have moved";
  allocate_some(1, 300);
  expect_together();
  ASSERT_TRUE(tested_->remove_server("m0", removal::begin).ok());
  for (int i = 0; i < 60'000 && tested_->members()[0].groups > 0; ++i) tend(ms);
  ASSERT_EQ(tested_->members()[0].groups, 0u);
  expect_together();
  allocate_some(1, 300);
  expect_together();
  for (const auto& [with, firsts] : firsts_) {
    for (const slot_id first : std::span(firsts).first(2)) ASSERT_EQ(read(first + with), static_cast<int>(with));
  }
}

TEST_F(slots_with_affinity, lie_anywhere_when_their_member_is_full) {
  constexpr std::uint64_t groups_of_member = 8;
  open(3, 1, groups_of_member * group_slots);
  std::set<std::set<int>> members;
  for (unsigned i = 0; i < 3 * groups_of_member; ++i) {
    const result<slot_id> first = tested_->allocate_near(1, group_slots);
    ASSERT_TRUE(first.ok()) << i;
    members.insert(members_of(first.value()));
  }
  EXPECT_EQ(members.size(), 3u);
  EXPECT_EQ(tested_->allocate_near(1, 1).error().code, ENOSPC);
  tested_->validate();
}

// Groups that cannot be placed any more leave room in others.
TEST_F(slots_with_affinity, share_the_last_groups) {
  open(2, 1, 4 * group_slots);
  allocate_some(1, 16);
  std::uint64_t used = 16 * some_affinities;
  while (tested_->allocate_near(3, 16).ok()) used += 16;
  EXPECT_EQ(used, 8 * group_slots);
}

// Servers that are about to stop take what is written to their slots, and lend no others.
TEST_F(slots_with_affinity, lie_anywhere_while_too_few_members_lend) {
  std::vector<std::unique_ptr<backend>> owned;
  for (int i = 0; i < 3; ++i) owned.push_back(make_member());
  replicated_options chosen;
  chosen.copies = chosen.least_copies = 2;
  chosen.clock = &clock_;
  tested_ = std::move(replicated_backend::create(std::move(owned), chosen)).value();
  const slot_id first = tested_->allocate(16).value();
  for (std::size_t i = 1; i < 3; ++i) members_[i]->is_draining = true;
  const result<slot_id> near = tested_->allocate_near(3, 16);
  ASSERT_TRUE(near.ok()) << near.error().message;
  EXPECT_EQ(near.value() / group_slots, first / group_slots) << "where there are free ones";
  ASSERT_TRUE(tested_->allocate_near(3, group_slots - 32).ok());
  EXPECT_EQ(tested_->allocate_near(3, 1).error().code, EAGAIN) << "there are no others until more members lend";
  tested_->validate();
}

// A server that asks for nothing of the kind is not fragmented for it.
TEST_F(slots_with_affinity, are_like_others_while_every_member_has_all) {
  open(2, 2);
  allocate_some(1, 8);
  EXPECT_EQ(tested_->report().used_slots, 8 * some_affinities);
  EXPECT_EQ(tested_->books().groups_end.load(), 1u);
}

}  // namespace
}  // namespace far::backend
