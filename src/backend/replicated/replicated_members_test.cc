// Members that are added, that come late, and that are restarted.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/replicated/replicated_backend.h"
#include "tests/support/controlled_members.h"

namespace far::backend {
namespace {

class replicated_members : public replicated_test {};

bool read_byte(int from, char* into) {
  return ::read(from, into, 1) == 1;
}

void write_byte(int to, char byte) {
  if (::write(to, &byte, 1) != 1) _exit(2);
}

TEST_F(replicated_members, groups_move_to_a_member_that_is_added) {
  constexpr std::uint64_t groups = 12;
  open(2, 2);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  ASSERT_TRUE(add().ok());
  EXPECT_FALSE(tested_->is_whole());
  tend_until_whole();
  expect_best_places();
  EXPECT_GT(tested_->members()[2].groups, groups / 3);
  EXPECT_EQ(tested_->repaired().moved_groups, tested_->members()[2].groups);
  EXPECT_EQ(members_[0]->used(), tested_->members()[0].groups * group_slots) << "what has moved is given back";
  for (std::size_t down = 0; down < 2; ++down) {
    take_down(down);
    expect_values(first, groups);
    members_[down]->error_code = 0;
    tend_until_whole();
  }
  take_down(2);
  expect_values(first, groups);
}

TEST_F(replicated_members, copies_that_are_lacking_are_counted_until_they_are_made_again) {
  constexpr std::uint64_t groups = 4;
  open(3, 2);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  tend(1000 * ms);
  capacity now = tested_->report();
  EXPECT_EQ(now.servers, 3u);
  EXPECT_EQ(now.away_servers, 0u);
  EXPECT_EQ(now.lacking_copies, 0u);
  EXPECT_EQ(now.repaired_copies, 0u);
  EXPECT_EQ(now.degraded_ns, 0u);
  const std::uint64_t held = tested_->members()[1].groups;
  ASSERT_GT(held, 0u);
  members_[1]->error_code = ETIMEDOUT;
  for (std::uint64_t number = 0; number < groups; ++number) ASSERT_EQ(write(first + number * group_slots, 1), 0);
  // Before it counts as lost, nothing is made again.
  tend(600 * ms);
  now = tested_->report();
  EXPECT_EQ(now.servers, 3u);
  EXPECT_EQ(now.away_servers, 1u);
  EXPECT_EQ(now.lacking_copies, held * group_slots);
  EXPECT_GT(now.degraded_ns, 200 * ms);
  EXPECT_LE(now.degraded_ns, 800 * ms);
  tend(60'000 * ms);
  now = tested_->report();
  EXPECT_EQ(now.lacking_copies, 0u);
  EXPECT_EQ(now.repaired_copies, held * group_slots);
  const std::uint64_t until_it_returns = now.degraded_ns;
  EXPECT_GT(until_it_returns, 30'000 * ms) << "a server is away, even if nothing is lacking";
  members_[1]->error_code = 0;
  tend_until_whole();
  tend(1000 * ms);
  const std::uint64_t when_whole = tested_->report().degraded_ns;
  tend(5000 * ms);
  EXPECT_EQ(tested_->report().away_servers, 0u);
  EXPECT_EQ(tested_->report().degraded_ns, when_whole);
}

// Any member may fail at any moment of a move.
TEST_F(replicated_members, a_group_has_all_its_copies_while_it_moves) {
  constexpr std::uint64_t groups = 6;
  open(3, 2);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  ASSERT_TRUE(add().ok());
  const layer& books = tested_->books();
  for (int i = 0; i < 60'000 && !tested_->is_whole(); ++i) {
    tend(ms);
    for (std::uint64_t number = 0; number < groups; ++number) {
      const group& seen = books.group_at(number);
      std::size_t whole = 0;
      for (std::size_t place = 0; place < maximum_places; ++place) {
        const copy& held = seen.copies[place];
        whole += held.present && !held.leaving && seen.stale(place).empty();
      }
      ASSERT_GE(whole, 2u);
    }
  }
  ASSERT_TRUE(tested_->is_whole());
  EXPECT_GT(tested_->repaired().moved_groups, 0u);
}

TEST_F(replicated_members, a_single_member_grows_and_what_is_written_meanwhile_moves_along) {
  constexpr std::uint64_t groups = 8;
  open(1, 1);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  ASSERT_TRUE(add().ok());
  int value = 0;
  for (int i = 0; i < 6000 && !tested_->is_whole(); ++i) {
    tend(10 * ms);
    ++value;
    for (std::uint64_t number = 0; number < groups; ++number) {
      ASSERT_EQ(write(first + number * group_slots + 7, value % 200), 0);
      ASSERT_EQ(read(first + number * group_slots + 7), value % 200);
    }
  }
  ASSERT_TRUE(tested_->is_whole());
  tested_->validate();
  expect_best_places();
  EXPECT_GT(tested_->members()[1].groups, 0u);
  EXPECT_GT(tested_->members()[0].groups, 0u);
  expect_values(first, groups);
  for (std::uint64_t number = 0; number < groups; ++number) {
    EXPECT_EQ(read(first + number * group_slots + 7), value % 200);
  }
}

TEST_F(replicated_members, an_added_member_brings_room) {
  open(1, 1, 2 * group_slots);
  const slot_id first = tested_->allocate(2 * group_slots).value();
  fill(first, 2);
  EXPECT_EQ(tested_->allocate(1).error().code, ENOSPC);
  ASSERT_TRUE(add(2 * group_slots).ok());
  const slot_id second = tested_->allocate(2 * group_slots).value();
  fill(second, 2);
  EXPECT_EQ(tested_->report().total_slots, 4 * group_slots);
  tend_until_whole();
  expect_values(first, 2);
  expect_values(second, 2);
}

TEST_F(replicated_members, a_member_is_added_as_a_whole_or_not_at_all) {
  open(1, 1);
  const auto refused = [this](std::string name, int open_code) {
    auto added = std::make_unique<controlled>(name, 512);
    added->open_code = open_code;
    const result<void> done = tested_->add_member(std::move(added), std::move(name));
    EXPECT_FALSE(done.ok());
    return done.ok() ? error{} : done.error();
  };
  EXPECT_EQ(refused("m0", 0).code, EEXIST);
  EXPECT_NE(refused("m0", 0).message.find("m0 already belongs to the far tier (serving)"), std::string::npos);
  EXPECT_EQ(refused("m1", EMFILE).code, EMFILE);
  EXPECT_EQ(tested_->members().size(), 1u);
  EXPECT_EQ(tested_->add_server("a:1").error().code, ENOTSUP);
  for (std::size_t i = 1; i < maximum_members; ++i) ASSERT_TRUE(add(group_slots).ok());
  EXPECT_EQ(refused("one more", 0).code, ENOSPC);
  tend_until_whole();
}

TEST_F(replicated_members, a_server_under_two_names_is_one_member) {
  std::vector<std::unique_ptr<backend>> owned;
  for (int i = 0; i < 3; ++i) {
    owned.push_back(make_member());
    members_.back()->identity = i == 2 ? 7 : 7 + static_cast<std::uint64_t>(i);
  }
  replicated_options chosen;
  chosen.copies = 2;
  const auto refused = replicated_backend::create(std::move(owned), chosen);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("m0 and m2 are one and the same server"), std::string::npos)
      << refused.error().message;

  members_.clear();
  open(2, 2, 8192, 1);  // the first one is not there yet
  members_[0]->identity = members_[1]->identity = 9;
  auto added = make_member();
  members_[2]->identity = 9;
  EXPECT_EQ(tested_->add_member(std::move(added), "m2").error().code, EEXIST);
  members_[0]->error_code = 0;
  tend(1000 * ms);
  EXPECT_EQ(tested_->members()[0].state, member_state::lost) << "it is the other one, and would hold both copies";
  members_[0]->identity = 10;
  tend(1000 * ms);
  EXPECT_EQ(tested_->members()[0].state, member_state::serving);
}

TEST_F(replicated_members, of_two_names_that_come_late_for_one_server_one_is_used) {
  open(3, 2, 8192, 2);
  members_[0]->identity = members_[1]->identity = 9;
  members_[2]->identity = 10;
  tend(2000 * ms);
  members_[0]->error_code = members_[1]->error_code = 0;
  tend(2000 * ms);
  const auto serves = [&](std::size_t index) { return tested_->members()[index].state == member_state::serving; };
  EXPECT_NE(serves(0), serves(1));
}

// As when hash slots of a cluster move.
TEST_F(replicated_members, copies_of_members_that_come_to_share_a_server_are_parted) {
  constexpr std::uint64_t groups = 12;
  open(3, 2, 2 * groups * group_slots);
  for (std::size_t i = 0; i < 3; ++i) members_[i]->identity = i + 1;
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  tend_until_whole();
  members_[1]->identity = members_[0]->identity;
  const slot_id second = tested_->allocate(groups * group_slots).value();
  fill(second, groups);
  const auto expect_parted = [&](slot_id begin) {
    for (std::uint64_t number = begin / group_slots; number < begin / group_slots + groups; ++number) {
      const auto& copies = tested_->books().group_at(number).copies;
      EXPECT_TRUE(std::any_of(copies.begin(), copies.end(),
                              [](const copy& held) { return held.present && !held.leaving && held.member == 2; }))
          << "group " << number;
    }
  };
  expect_parted(second);
  EXPECT_FALSE(tested_->is_whole());
  tend_until_whole();
  expect_parted(first);
  members_[0]->error_code = members_[1]->error_code = ETIMEDOUT;
  tend(3000 * ms);
  expect_values(first, groups);
  expect_values(second, groups);
}

TEST_F(replicated_members, nothing_moves_away_from_where_a_child_may_read_it) {
  constexpr std::uint64_t groups = 8;
  open(1, 1);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  tested_->keep_in_place(true);
  ASSERT_TRUE(add().ok());
  tend(5000 * ms);
  EXPECT_EQ(members_[0]->used(), groups * group_slots);
  EXPECT_EQ(members_[1]->used(), 0u);
  tested_->keep_in_place(false);
  for (int i = 0; i < 1000 && tested_->repaired().moved_groups == 0; ++i) tend(ms);
  // In the middle of a move.
  tested_->keep_in_place(true);
  tend(5000 * ms);
  EXPECT_EQ(tested_->repaired().removed_copies, 0u);
  tested_->keep_in_place(false);
  tend_until_whole();
  expect_best_places();
  expect_values(first, groups);
}

TEST_F(replicated_members, a_copy_that_is_being_given_up_stays_when_a_child_is_forked) {
  constexpr std::uint64_t groups = 6;
  open(1, 1);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  const layer& books = tested_->books();
  // As if a transfer was under way in each.
  for (std::uint64_t number = 0; number < groups; ++number) ++books.group_at(number).holds;
  const auto leaving = [&] {
    std::size_t count = 0;
    for (std::uint64_t number = 0; number < groups; ++number) {
      for (const copy& held : books.group_at(number).copies) count += held.leaving;
    }
    return count;
  };
  ASSERT_TRUE(add().ok());
  for (int i = 0; i < 10'000 && leaving() == 0; ++i) tend(ms);
  ASSERT_EQ(leaving(), 1u);
  tested_->keep_in_place(true);
  for (std::uint64_t number = 0; number < groups; ++number) --books.group_at(number).holds;
  tend(1000 * ms);
  EXPECT_EQ(leaving(), 0u);
  EXPECT_EQ(tested_->repaired().removed_copies, 0u);
  tested_->keep_in_place(false);
  tend_until_whole();
  expect_values(first, groups);
}

TEST_F(replicated_members, a_member_that_is_missing_at_the_start_takes_its_share_when_it_comes) {
  constexpr std::uint64_t groups = 6;
  open(2, 2, 8192, 1);
  EXPECT_EQ(tested_->members()[0].state, member_state::lost);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  tend(3000 * ms);
  EXPECT_FALSE(tested_->is_whole());
  members_[0]->error_code = 0;
  tend_until_whole();
  take_down(1);
  expect_values(first, groups);
}

TEST_F(replicated_members, of_three_members_one_that_comes_late_is_moved_to) {
  constexpr std::uint64_t groups = 12;
  open(3, 2, 8192, 1);
  const slot_id first = tested_->allocate(groups * group_slots).value();
  fill(first, groups);
  tend(3000 * ms);
  members_[0]->error_code = 0;
  tend_until_whole();
  expect_best_places();
  expect_values(first, groups);
}

TEST_F(replicated_members, a_server_that_was_restarted_is_noticed_though_nobody_asks_it) {
  open(3, 2);
  const std::uint64_t errors = tested_->books().at(2).now().errors;
  members_[2]->forget();
  tend(ms);
  EXPECT_NE(tested_->books().at(2).now().errors, errors) << "one that held nothing, too";
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 5), 0);
  const std::size_t victim = holder(slot, 0);
  const std::uint64_t reads = members_[victim]->reads;
  members_[victim]->forget();
  tend(ms);
  EXPECT_EQ(tested_->members()[victim].state, member_state::emptied);
  EXPECT_EQ(members_[victim]->reads, reads);
  tend_until_whole();
  EXPECT_EQ(read(slot), 5);
}

// A server comes back empty, with room for the copies that it held and for some more. Groups that are given up
// elsewhere let new ones be placed there, which must not take all of it.
TEST_F(replicated_members, new_groups_leave_room_for_the_copies_that_are_being_rebuilt) {
  constexpr std::uint64_t member_groups = 40;
  for (const unsigned seed : {0u, 1u, 2u, 3u, 4u, 166u}) {
    queue_.reset();
    members_.clear();
    open(3, 2, member_groups * group_slots);
    std::mt19937 chance(seed);
    std::vector<slot_id> held;
    // In whole groups, of which the first and the last slot stay. `scattered`: not on the members that they hash to.
    const auto grow = [&](bool scattered) {
      while (true) {
        const std::size_t full = chance() % members_.size();
        if (scattered) members_[full]->allocate_code = ENOSPC;
        result<slot_id> slot = tested_->allocate(group_slots);
        members_[full]->allocate_code = 0;
        if (!slot) slot = tested_->allocate(group_slots);
        if (!slot) return;
        held.push_back(slot.value());
        tested_->free(slot.value() + 1, group_slots - 2);
      }
    };
    grow(true);
    const std::size_t emptied = chance() % members_.size();
    members_[emptied]->forget();
    tend(ms);
    for (int i = 0; i < 1000 && tested_->members()[emptied].state != member_state::serving; ++i) tend(ms);
    const auto elsewhere = std::stable_partition(held.begin(), held.end(), [&](slot_id slot) {
      const group& seen = tested_->books().group_at(slot / group_slots);
      return !seen.copies[0].present || !seen.copies[1].present || chance() % 2 == 0;
    });
    for (const slot_id slot : std::span(elsewhere, held.end())) {
      tested_->free(slot, 1);
      tested_->free(slot + group_slots - 1, 1);
    }
    held.erase(elsewhere, held.end());
    grow(true);
    tend_until_whole();
  }
}

// With as many copies as servers, each holds a copy of every group: one that comes back empty has room for all of them
// and for new ones, and eviction need not wait until the last byte is copied.
TEST_F(replicated_members, eviction_goes_on_while_an_emptied_server_of_all_that_are_needed_is_filled) {
  constexpr std::uint64_t member_groups = 40;
  open(2, 2, member_groups * group_slots);
  const slot_id first = tested_->allocate(30 * group_slots).value();
  fill(first, 30);
  members_[1]->forget();
  members_[0]->holds_back_reads = true;  // nothing can be copied yet
  tend(ms);
  for (int i = 0; i < 1000 && tested_->members()[1].state != member_state::serving; ++i) tend(ms);
  ASSERT_EQ(tested_->members()[1].state, member_state::serving);
  const auto more = tested_->allocate(10 * group_slots);
  EXPECT_TRUE(more.ok());
  members_[0]->holds_back_reads = false;
  tend_until_whole();
  expect_values(first, 30);
}

// Its groups of before are let go of, and what is written from now on must not go with them.
TEST_F(replicated_members, nothing_new_is_put_on_a_member_that_has_forgotten_before_that_is_noticed) {
  open(1, 1);
  static_cast<void>(tested_->allocate(group_slots));
  members_[0]->forget();
  result<slot_id> fresh = tested_->allocate(1);
  EXPECT_EQ(fresh.error().code, EAGAIN);
  for (int i = 0; i < 100 && !fresh; ++i) {
    tend(10 * ms);
    fresh = tested_->allocate(1);
  }
  ASSERT_TRUE(fresh.ok());
  ASSERT_EQ(write(fresh.value(), 8), 0);
  tend(2000 * ms);
  EXPECT_EQ(read(fresh.value()), 8);
}

TEST_F(replicated_members, a_process_that_ends_waits_for_no_member_that_is_away) {
  open(3, 2);
  members_[1]->error_code = ETIMEDOUT;
  tested_->prepare_exit();
  EXPECT_EQ(members_[0]->exits, 1u);
  EXPECT_EQ(members_[1]->exits, 0u);
  EXPECT_EQ(members_[2]->exits, 1u);
}

// The servers keep what it reads for its parent's connections, and then for its own, which tending makes.
class child_that_outlives_its_parent : public replicated_members, public testing::WithParamInterface<bool> {};

TEST_P(child_that_outlives_its_parent, keeps_its_own_connections) {
  const bool parent_ends_at_once = GetParam();
  open(2, 2);
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 7), 0);
  std::array<int, 2> to_parent{};
  std::array<int, 2> from_child{};
  ASSERT_EQ(pipe(to_parent.data()), 0);
  ASSERT_EQ(pipe(from_child.data()), 0);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    tested_->after_fork_in_child();
    const pid_t itself = getpid();
    if (fork() != 0) {
      char ends = 0;
      _exit(parent_ends_at_once || read_byte(to_parent[0], &ends) ? 0 : 1);
    }
    const auto await_the_end = [&] {
      while (getppid() == itself) sched_yield();
    };
    if (parent_ends_at_once) await_the_end();
    tested_->after_fork_in_child();
    bool was_quiet = true;
    if (!parent_ends_at_once) {
      static_cast<void>(tested_->tend());
      was_quiet = members_[0]->tendings + members_[1]->tendings == 0;
      write_byte(to_parent[1], 'e');
      await_the_end();
    }
    static_cast<void>(tested_->tend());
    const bool tends = members_[0]->tendings > 0 && members_[1]->tendings > 0;
    write_byte(from_child[1], was_quiet && tends ? 'y' : 'n');
    _exit(0);
  }
  close(from_child[1]);
  char got = 0;
  EXPECT_TRUE(read_byte(from_child[0], &got)) << "the child ended early";
  EXPECT_EQ(got, 'y');
  int status = 0;
  EXPECT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_EQ(status, 0);
  for (const int end : {to_parent[0], to_parent[1], from_child[0]}) close(end);
}

INSTANTIATE_TEST_SUITE_P(, child_that_outlives_its_parent, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& ends) {
                           return ends.param ? "that_ended_before_it_ran" : "that_ends_later";
                         });

}  // namespace
}  // namespace far::backend
