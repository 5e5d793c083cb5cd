#include "backend/replicated/replicated_backend.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/controlled_members.h"

namespace far::backend {
namespace {

class replicated : public replicated_test {};

TEST_F(replicated, says_what_is_wrong_with_its_options) {
  EXPECT_EQ(replicated_backend::create({}, {}).error().code, EINVAL);
  std::vector<std::unique_ptr<backend>> one;
  one.push_back(std::make_unique<controlled>("m"));
  replicated_options chosen;
  chosen.copies = 2;
  EXPECT_NE(replicated_backend::create(std::move(one), chosen).error().message.find("copies=2 with 1 server"),
            std::string::npos);
}

TEST_F(replicated, stripes_are_spread_and_given_back) {
  open(3, 1);
  std::vector<slot_id> firsts;
  for (int i = 0; i < 24; ++i) firsts.push_back(tested_->allocate(group_slots).value());
  for (const controlled* member : members_) EXPECT_GT(member->used(), 2 * group_slots);
  EXPECT_EQ(tested_->report().used_slots, 24 * group_slots);
  for (const slot_id first : firsts) tested_->free(first, group_slots);
  std::uint64_t kept = 0;
  for (const controlled* member : members_) kept += member->used();
  EXPECT_LE(kept, 4 * group_slots) << "only a reserve stays";
  tested_->validate();
}

TEST_F(replicated, both_copies_get_every_write) {
  open(3, 2);
  const slot_id slot = tested_->allocate(8).value();
  EXPECT_EQ(write(slot + 3, 42), 0);
  const group& placed = tested_->books().group_at(0);
  for (const std::size_t place : {0u, 1u}) {
    EXPECT_EQ(members_[placed.copies[place].member]->at(placed.copies[place].first + slot + 3), std::byte{42});
  }
  EXPECT_NE(placed.copies[0].member, placed.copies[1].member);
}

// Keys in one slot, numbers in two others: how many rows each group has. The key of a page's rows is its first byte.
class replicated_rows : public replicated_test {
 protected:
  replicated_rows() { rows_.key[0] = {1, 9, detail::number_type::uint8}; }

  // Of slots in different groups, as many as there are groups.
  void write_groups(std::size_t groups) {
    for (std::size_t i = 0; i < groups; ++i) {
      firsts_.push_back(tested_->allocate(group_slots).value());
      ASSERT_EQ(write(firsts_.back() + i, static_cast<int>(i + 1)), 0);
    }
  }
  [[nodiscard]] slot_id slot(std::size_t group) const { return firsts_[group] + group; }
  // The sum of the numbers, which are in the group of the keys; or an error.
  [[nodiscard]] int ask(std::size_t keys, std::size_t numbers) {
    const std::array<slot_id, 2> slots{slot(keys), slot(numbers)};
    const page_hasher hash(1);
    const page_reduction asked{.how = {.type = detail::number_type::uint8,
                                       .highest = 0xff,
                                       .kind = reduction_kind::of_rows,
                                       .groups = 9,
                                       .rows = &rows_},
                               .hash = &hash,
                               .slots = slots};
    std::vector<std::byte> answer(answer_bytes(asked.how));
    const request one{
        .op = operation::read, .slot = slots[0], .buffer = answer.data(), .is_needed = false, .reduce = &asked};
    EXPECT_EQ(queue_->submit({&one, 1}), 1u);
    const int code = finish();
    if (code != 0) return -code;
    std::int64_t sum = 0;
    std::memcpy(&sum, answer.data() + keys * sizeof sum, sizeof sum);
    return static_cast<int>(sum / static_cast<std::int64_t>(page_bytes));
  }
  [[nodiscard]] std::set<int> members_with(std::size_t group) {
    std::set<int> found;
    group_of_books& placed = tested_->books().group_at(firsts_[group] / group_slots);
    for (const copy& one : placed.copies) {
      if (one.present) found.insert(one.member);
    }
    return found;
  }
  using group_of_books = ::far::backend::group;

  detail::keyed_rows rows_{.rows = page_bytes, .keys = 1, .wants_sums = true};
  std::vector<slot_id> firsts_;
};

TEST_F(replicated_rows, are_asked_about_where_all_their_slots_are) {
  open(3, 1);
  write_groups(6);
  unsigned apart = 0;
  for (std::size_t keys = 0; keys < 6; ++keys) {
    for (std::size_t numbers = 0; numbers < 6; ++numbers) {
      const bool is_together = members_with(keys) == members_with(numbers);
      ASSERT_EQ(ask(keys, numbers), is_together ? static_cast<int>(numbers + 1) : -EXDEV) << keys << " " << numbers;
      apart += is_together ? 0 : 1;
    }
  }
  EXPECT_GT(apart, 0u);
  tested_->validate();
}

TEST_F(replicated_rows, with_two_copies_on_three_members_find_one_for_two_slots) {
  open(3, 2);
  write_groups(5);
  for (std::size_t keys = 0; keys < 5; ++keys) {
    for (std::size_t numbers = 0; numbers < 5; ++numbers) {
      ASSERT_EQ(ask(keys, numbers), static_cast<int>(numbers + 1)) << keys << " " << numbers;
    }
  }
}

TEST_F(replicated_rows, are_not_answered_from_a_stale_copy_or_by_a_lost_member) {
  open(2, 2);
  write_groups(2);
  members_[0]->error_code = EIO;
  page_.fill(std::byte{200});
  ASSERT_EQ(transfer(operation::write, slot(1), page_.data()), 0) << "the other copy has it";
  members_[0]->error_code = 0;
  for (int i = 0; i < 300; ++i) ASSERT_EQ(ask(0, 1), 200);
  members_[1]->error_code = ETIMEDOUT;
  EXPECT_LT(ask(0, 1), 0);
  members_[1]->error_code = 0;
  tend_until_whole();
  members_[1]->error_code = ETIMEDOUT;
  EXPECT_EQ(ask(0, 1), 200) << "repaired";
}

// A read of the bytes does, until the member is given up.
TEST_F(replicated_rows, do_not_wait_for_a_member_that_is_away) {
  open(2, 1);
  write_groups(1);
  members_[*members_with(0).begin()]->error_code = ETIMEDOUT;
  EXPECT_EQ(ask(0, 0), -ETIMEDOUT);
  const std::uint64_t before_ns = clock_.now;
  EXPECT_EQ(ask(0, 0), -ETIMEDOUT);
  EXPECT_LT(clock_.now, before_ns + 10 * ms);
  EXPECT_EQ(read(slot(0)), -1);
  EXPECT_GT(clock_.now, before_ns + 900 * ms);
}

TEST_F(replicated, a_write_is_not_complete_before_all_copies_have_it) {
  open(2, 2);
  const slot_id slot = tested_->allocate(1).value();
  members_[1]->holds_back_writes = true;
  submit(operation::write, slot, page_.data());
  for (int polls = 0; polls < 20; ++polls) EXPECT_EQ(poll_once(), -1);
  members_[1]->holds_back_writes = false;
  EXPECT_EQ(finish(), 0);
}

TEST_F(replicated, a_member_lost_in_a_write_leaves_a_stale_copy_that_is_not_read) {
  open(2, 2);
  const slot_id slot = tested_->allocate(4).value();
  ASSERT_EQ(write(slot, 1), 0);
  members_[0]->error_code = ETIMEDOUT;
  ASSERT_EQ(write(slot, 2), 0) << "the other copy has it";
  members_[0]->error_code = 0;
  for (int i = 0; i < 300; ++i) ASSERT_EQ(read(slot), 2);
  tend(2000 * ms);
  EXPECT_TRUE(tested_->is_whole());
  members_[1]->error_code = ETIMEDOUT;
  EXPECT_EQ(read(slot), 2) << "repaired";
}

TEST_F(replicated, a_failed_write_makes_a_copy_stale_even_if_its_member_serves_on) {
  open(2, 2);
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 1), 0);
  members_[1]->error_code = EIO;
  ASSERT_EQ(write(slot, 2), 0);
  members_[1]->error_code = 0;
  members_[0]->error_code = EIO;
  EXPECT_EQ(read(slot), -1) << "an error, never the old bytes";
  members_[0]->error_code = 0;
  EXPECT_EQ(read(slot), 2);
}

TEST_F(replicated, a_write_that_nobody_took_fails) {
  open(2, 2);
  const slot_id slot = tested_->allocate(1).value();
  members_[0]->error_code = EIO;
  members_[1]->error_code = EIO;
  EXPECT_EQ(write(slot, 1), EIO);
  members_[0]->error_code = members_[1]->error_code = 0;
  EXPECT_EQ(write(slot, 2), 0);
  EXPECT_EQ(read(slot), 2);
}

TEST_F(replicated, a_read_that_fails_is_repeated_on_the_other_copy) {
  open(3, 2);
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 9), 0);
  for (const int code : {EIO, ETIMEDOUT, ESTALE}) {
    members_[holder(slot, 0)]->error_code = code;
    EXPECT_EQ(read(slot), 9);
    members_[holder(slot, 0)]->error_code = 0;
    tend(3000 * ms);
    ASSERT_TRUE(tested_->is_whole()) << code;
  }
}

TEST_F(replicated, a_copy_with_other_bytes_is_not_read_and_written_again) {
  open(3, 2);
  const slot_id slot = tested_->allocate(group_slots).value();
  for (slot_id i = 0; i < 3; ++i) ASSERT_EQ(write(slot + i, 9), 0);
  const group& seen = tested_->books().group_at(slot / group_slots);
  const std::size_t bad = holder(slot, 0);
  const std::size_t good = holder(slot, 1);
  members_[bad]->damage(seen.copies[0].first + slot % group_slots + 1);
  const auto read_from = [&](slot_id from, std::uint64_t avoid, std::size_t count) {
    const request one{.op = operation::read,
                      .slot = from,
                      .length_bytes = static_cast<std::uint32_t>(count * page_bytes),
                      .buffer = page_.data(),
                      .avoid = avoid};
    EXPECT_EQ(queue_->submit({&one, 1}), 1u);
    completion done;
    while (queue_->poll({&done, 1}) == 0) {
    }
    EXPECT_EQ(done.error_code, 0);
    return done.source;
  };
  const auto source_of = [](std::size_t member) { return static_cast<std::uint8_t>(member + 1); };
  const auto bit_of = [](std::size_t member) { return std::uint64_t{1} << member; };
  EXPECT_EQ(read_from(slot + 1, bit_of(good), 1), source_of(bad));
  EXPECT_EQ(page_[7], std::byte{8});
  EXPECT_EQ(read_from(slot + 1, bit_of(bad), 1), source_of(good));
  EXPECT_EQ(page_[7], std::byte{9});
  EXPECT_NE(read_from(slot + 1, bit_of(bad) | bit_of(good), 1), 0) << "better than nothing";

  tested_->report_damage(slot + 1, source_of(bad), source_of(bad), damage::wrong_bytes);
  tested_->report_damage(slot + 1, source_of(bad), source_of(3 - bad - good), damage::wrong_bytes);
  EXPECT_EQ(tested_->books().damaged_slots(), 0u) << "the source of the right bytes must be one of the copies";
  tested_->report_damage(slot + 1, source_of(bad), source_of(good), damage::wrong_bytes);
  EXPECT_FALSE(tested_->is_whole());
  for (int i = 0; i < 300; ++i) EXPECT_EQ(read(slot + 1), 9) << "also when the second best copy is tried out";
  tend_until_whole();
  EXPECT_EQ(tested_->repaired().repaired_slots, 1u);
  EXPECT_EQ(tested_->books().damaged_slots(), 1u);
  EXPECT_EQ(read_from(slot + 1, bit_of(good), 1), source_of(bad));
  EXPECT_EQ(page_[7], std::byte{9});
}

// Pages that are read in one go may have come from several copies.
TEST_F(replicated, a_read_from_several_copies_names_none) {
  open(2, 2);
  const slot_id slot = tested_->allocate(group_slots).value();
  ASSERT_EQ(write(slot, 9), 0);
  ASSERT_EQ(write(slot + 1, 9), 0);
  tested_->report_damage(slot, 1, 2, damage::wrong_bytes);
  tested_->report_damage(slot + 1, 2, 1, damage::wrong_bytes);
  std::vector<std::byte> both(2 * page_bytes);
  const request one{
      .op = operation::read, .slot = slot, .length_bytes = 2 * page_bytes, .buffer = both.data(), .cookie = 7};
  ASSERT_EQ(queue_->submit({&one, 1}), 1u);
  completion done;
  while (queue_->poll({&done, 1}) == 0) {
  }
  EXPECT_EQ(done.error_code, 0);
  EXPECT_EQ(done.source, 0);
  EXPECT_EQ(both[page_bytes + 7], std::byte{9});
}

TEST_F(replicated, the_fastest_copy_is_read_and_the_other_one_looked_at_now_and_then) {
  open(2, 2);
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 9), 0);
  // Each read on member 1 takes long.
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t before = members_[1]->reads;
    submit(operation::read, slot, page_.data());
    clock_.now += members_[1]->reads > before ? 500'000 : 5'000;
    ASSERT_EQ(finish(), 0);
  }
  EXPECT_GT(members_[0]->reads, 1900u);
  EXPECT_GE(members_[1]->reads, 5u);
}

TEST_F(replicated, a_lost_members_groups_are_made_again_on_the_others) {
  open(3, 2);
  const slot_id first = tested_->allocate(3 * group_slots).value();
  for (slot_id slot = first; slot < first + 3 * group_slots; slot += 50)
    ASSERT_EQ(write(slot, static_cast<int>(slot % 200)), 0);
  take_down(0);
  tend(4000 * ms);
  for (const auto& member : tested_->members()) {
    if (member.name == "m0") continue;
    EXPECT_EQ(member.groups, 3u);
  }
  EXPECT_EQ(tested_->members()[0].groups, 0u);
  take_down(1);
  for (slot_id slot = first; slot < first + 3 * group_slots; slot += 50)
    ASSERT_EQ(read(slot), static_cast<int>(slot % 200));
}

TEST_F(replicated, a_member_that_forgot_everything_is_filled_again) {
  open(2, 2);
  const slot_id slot = tested_->allocate(4).value();
  for (int i = 0; i < 4; ++i) ASSERT_EQ(write(slot + static_cast<slot_id>(i), 10 + i), 0);
  members_[1]->forget();
  tend(5000 * ms);
  ASSERT_TRUE(tested_->is_whole());
  members_[0]->error_code = ETIMEDOUT;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(read(slot + static_cast<slot_id>(i)), 10 + i);
}

TEST_F(replicated, repair_does_not_overwrite_what_is_written_meanwhile) {
  open(2, 2);
  const slot_id slot = tested_->allocate(8).value();
  ASSERT_EQ(write(slot, 1), 0);
  members_[1]->error_code = ETIMEDOUT;
  ASSERT_EQ(write(slot, 2), 0);
  members_[1]->error_code = 0;
  // The repair has read the 2 and its write is held back; then the program writes a 3, which arrives first.
  members_[1]->holds_back_writes = true;
  tend(1000 * ms);
  ASSERT_EQ(tested_->books().group_at(0).holds, 1) << "the repair is under way";
  page_.fill(std::byte{3});
  submit(operation::write, slot, page_.data());
  members_[1]->holds_back_writes = false;
  ASSERT_EQ(finish(), 0);
  tend(2 * ms);
  EXPECT_GT(tested_->repaired().raced_slots, 0u);
  tend(2000 * ms);
  ASSERT_TRUE(tested_->is_whole());
  members_[0]->error_code = ETIMEDOUT;
  EXPECT_EQ(read(slot), 3);
}

TEST_F(replicated, without_copies_a_paused_member_is_waited_for_and_a_lost_one_is_out_of_reach) {
  open(1, 1);
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 5), 0);
  members_[0]->error_code = ETIMEDOUT;
  EXPECT_EQ(read(slot), -1) << "the read that notices";
  EXPECT_FALSE(queue_->waits_for_time());
  submit(operation::read, slot, page_.data());
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(poll_once(), -1) << "waits";
    EXPECT_TRUE(queue_->waits_for_time());
    tend(2 * ms);
  }
  members_[0]->error_code = 0;
  tend(200 * ms);
  EXPECT_EQ(finish(), 0);
  EXPECT_FALSE(queue_->waits_for_time());
  members_[0]->waits_for_time = true;
  EXPECT_TRUE(queue_->waits_for_time());
  EXPECT_EQ(page_[0], std::byte{5});
  take_down(0);
  EXPECT_EQ(tested_->members()[0].state, member_state::lost);
  EXPECT_EQ(transfer(operation::read, slot, page_.data()), ETIMEDOUT);
  EXPECT_NE(tested_->describe().find("m0 (lost)"), std::string::npos) << tested_->describe();
  members_[0]->error_code = 0;
  tend(200 * ms);
  EXPECT_EQ(read(slot), 5) << "it came back after all";
}

TEST_F(replicated, bytes_on_servers_that_are_all_out_of_reach_are_not_gone_until_one_has_forgotten_them) {
  open(2, 2);
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 5), 0);
  members_[0]->error_code = members_[1]->error_code = ENETUNREACH;
  tend(10'000 * ms);
  ASSERT_EQ(tested_->members()[0].state, member_state::lost);
  ASSERT_EQ(tested_->members()[1].state, member_state::lost);
  EXPECT_EQ(transfer(operation::read, slot, page_.data()), ETIMEDOUT);
  members_[0]->forget();
  members_[0]->error_code = 0;
  tend(500 * ms);
  EXPECT_EQ(transfer(operation::read, slot, page_.data()), ETIMEDOUT) << "the other one may still have them";
  members_[1]->error_code = 0;
  tend(500 * ms);
  EXPECT_EQ(read(slot), 5);
  members_[0]->error_code = members_[1]->error_code = ETIMEDOUT;
  tend(3000 * ms);
  members_[0]->forget();
  members_[1]->forget();
  members_[0]->error_code = members_[1]->error_code = 0;
  tend(500 * ms);
  EXPECT_EQ(transfer(operation::read, slot, page_.data()), ESTALE);
}

TEST_F(replicated, bytes_are_not_gone_while_one_of_two_servers_may_have_them) {
  for (const std::size_t silent : {0u, 1u}) {
    queue_.reset();
    members_.clear();
    open(2, 2);
    const slot_id slot = tested_->allocate(1).value();
    ASSERT_EQ(write(slot, 5), 0);
    members_[silent]->error_code = ETIMEDOUT;
    members_[1 - silent]->forget();
    EXPECT_EQ(transfer(operation::read, slot, page_.data()), ETIMEDOUT) << silent;
    members_[silent]->error_code = 0;
    tend(500 * ms);
    EXPECT_EQ(read(slot), 5);
  }
}

TEST_F(replicated, reads_wait_as_long_as_the_longest_lease_lives) {
  open(2, 2);
  EXPECT_EQ(tested_->read_patience_ns(), 30'000 * ms) << "nobody has granted anything";
  members_[1]->granted_ns = 3'600'000 * ms;
  members_[0]->granted_ns = 60'000 * ms;
  EXPECT_EQ(tested_->read_patience_ns(), 3'600'000 * ms);
}

TEST_F(replicated, silence_counts_from_when_the_last_holder_went) {
  open(2, 2);
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 5), 0);
  members_[0]->error_code = ETIMEDOUT;
  EXPECT_EQ(read(slot), 5);
  EXPECT_EQ(tested_->away_since_ns(slot), 0u) << "the other one answers";
  members_[1]->error_code = ETIMEDOUT;
  const std::uint64_t before_ns = clock_.now_ns();
  while (tested_->away_since_ns(slot) == 0 && clock_.now_ns() < before_ns + 1000 * ms) {
    EXPECT_EQ(transfer(operation::read, slot, page_.data()), ETIMEDOUT);
    tend(20 * ms);
  }
  const std::uint64_t since_ns = tested_->away_since_ns(slot);
  EXPECT_GE(since_ns, before_ns);
  tend(500 * ms);
  EXPECT_EQ(tested_->away_since_ns(slot), since_ns);
  members_[0]->error_code = 0;
  tend(500 * ms);
  EXPECT_EQ(read(slot), 5);
  EXPECT_EQ(tested_->away_since_ns(slot), 0u) << "one is back";
  members_[0]->error_code = ETIMEDOUT;
  static_cast<void>(transfer(operation::read, slot, page_.data()));
  tend(20 * ms);
  EXPECT_GT(tested_->away_since_ns(slot), since_ns) << "another outage";
}

TEST_F(replicated, slots_of_groups_that_cannot_be_written_are_not_given_out) {
  open(2, 1);
  std::vector<slot_id> taken;
  for (int i = 0; i < 6; ++i) taken.push_back(tested_->allocate(200).value());
  const auto on_first = std::find_if(taken.begin(), taken.end(), [this](slot_id slot) { return holder(slot, 0) == 0; });
  ASSERT_NE(on_first, taken.end());
  members_[0]->error_code = ETIMEDOUT;
  EXPECT_EQ(read(*on_first), -1);
  tend(20 * ms);
  for (int i = 0; i < 400; ++i) {
    taken.push_back(tested_->allocate(1).value());
    EXPECT_EQ(holder(taken.back(), 0), 1u);
  }
  tested_->validate();
  tend(3000 * ms);
  ASSERT_EQ(tested_->members()[0].state, member_state::lost);
  for (int i = 0; i < 400; ++i) {
    taken.push_back(tested_->allocate(1).value());
    EXPECT_EQ(write(taken.back(), i % 100), 0);
  }
  tested_->validate();
  members_[0]->error_code = 0;
  tend(3000 * ms);
  EXPECT_TRUE(tested_->is_whole());
  for (int i = 0; i < 400; ++i) EXPECT_EQ(read(taken[taken.size() - 400 + static_cast<std::size_t>(i)]), i % 100);
  tested_->validate();
  for (std::size_t i = 0; i < taken.size(); ++i) tested_->free(taken[i], i < 6 ? 200 : 1);
  EXPECT_EQ(tested_->report().used_slots, 0u);
}

// The repairer has decided to let go of a copy, and the group's last slots are freed before it has done so.
TEST_F(replicated, a_group_is_not_given_up_while_a_copy_of_it_is_let_go_of) {
  constexpr std::uint64_t raced = 6;  // the group; the first to be given up is the one before
  open(2, 2);
  for (std::uint64_t number = 0; number < 8; ++number) {
    ASSERT_EQ(tested_->allocate(group_slots).value(), number * group_slots);
  }
  ASSERT_EQ(write(0, 9), 0);
  tested_->free(group_slots, 4 * group_slots);
  members_[1]->forget();
  for (int steps = 0; tested_->repaired().removed_copies < raced; ++steps) {
    ASSERT_LT(steps, 10'000);
    clock_.now += ms;
    static_cast<void>(tested_->tend());
  }
  std::atomic<bool> freeing{false};
  std::atomic<bool> tending{false};
  members_[0]->before_free = [&] {
    if (freeing.exchange(true)) return;
    while (!tending) std::this_thread::yield();
    // tend() is to come as far as it can meanwhile.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  std::thread other([&] { tested_->free((raced - 1) * group_slots, 2 * group_slots); });
  while (!freeing) std::this_thread::yield();
  tending = true;
  static_cast<void>(tested_->tend());
  other.join();
  members_[0]->before_free = nullptr;
  EXPECT_EQ(tested_->repaired().removed_copies, raced + 1) << "the race was not met";
  EXPECT_EQ(members_[0]->used(), tested_->members()[0].groups * group_slots);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(write(tested_->allocate(group_slots).value(), 1), 0);
  EXPECT_EQ(read(0), 9) << "somebody else was given its place";
}

TEST_F(replicated, room_is_needed_on_as_many_members_as_there_are_copies) {
  open(3, 2, 2 * group_slots);
  EXPECT_EQ(tested_->report().total_slots, 3 * group_slots);
  members_[0]->allocate_code = EAGAIN;
  members_[1]->allocate_code = EAGAIN;
  EXPECT_EQ(tested_->allocate(1).error().code, EAGAIN);
  members_[1]->allocate_code = 0;
  clock_.now += 2000 * ms;
  EXPECT_TRUE(tested_->allocate(1).ok()) << "after a while others are taken";
  members_[1]->allocate_code = ENOSPC;
  members_[0]->allocate_code = ENOSPC;
  EXPECT_EQ(tested_->allocate(group_slots).error().code, ENOSPC);
}

TEST_F(replicated, a_server_that_is_about_to_stop_does_not_stop_eviction) {
  open(2, 2);
  const slot_id before = tested_->allocate(group_slots).value();
  fill(before, 1);
  members_[0]->is_draining = true;
  tend(200 * ms);
  const slot_id first = tested_->allocate(4 * group_slots).value();
  fill(first, 4);
  expect_values(first, 4);
  expect_values(before, 1);
  EXPECT_FALSE(tested_->is_whole());
  ASSERT_TRUE(add());
  tend_until_whole();
  EXPECT_GT(members_[2]->used(), 4 * group_slots - 1) << "what has one copy has got the second one";
  take_down(1);
  expect_values(before, 1);
  expect_values(first, 4);
}

TEST_F(replicated, with_too_few_members_one_copy_must_do_until_another_comes_back) {
  open(2, 2);
  static_cast<void>(tested_->allocate(1));
  take_down(1);
  const slot_id slot = tested_->allocate(group_slots).value();
  ASSERT_EQ(write(slot, 4), 0);
  EXPECT_FALSE(tested_->is_whole());
  members_[1]->error_code = 0;
  tend(3000 * ms);
  EXPECT_TRUE(tested_->is_whole());
  members_[0]->error_code = ETIMEDOUT;
  EXPECT_EQ(read(slot), 4);
}

TEST_F(replicated, a_child_reads_and_does_not_trust_extents_that_its_parent_has_given_up) {
  open(3, 2);
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 6), 0);
  std::array<int, 2> go{};
  ASSERT_EQ(pipe(go.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    tested_->after_fork_in_child();
    static_cast<void>(queue_.release());
    queue_ = tested_->open_channel(16).value();
    const bool before = read(slot) == 6;
    char said = 0;
    static_cast<void>(!::read(go[0], &said, 1));
    // The parent's changes to the extent of place 0 do not show here: it must not be read.
    const std::uint64_t reads = members_[holder(slot, 0)]->reads;
    bool after = true;
    for (int i = 0; i < 300; ++i) after = after && read(slot) == 6;
    _exit(before && after && members_[holder(slot, 0)]->reads == reads ? 0 : 1);
  }
  members_[holder(slot, 0)]->forget();
  tend(5000 * ms);
  ASSERT_TRUE(tested_->is_whole());
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(go[0]);
  close(go[1]);
}

}  // namespace
}  // namespace far::backend
