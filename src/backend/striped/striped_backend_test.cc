#include "backend/striped/striped_backend.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/striped_tier.h"

namespace far::backend {
namespace {

TEST_F(striped, what_was_written_comes_back_and_each_page_is_read_from_one_member) {
  open(3, {2, 1});
  const slot_id first = write_new(64);
  expect_all();
  std::uint64_t reads = 0;
  for (const controlled* member : members_) reads += member->reads;
  EXPECT_EQ(reads, 64u);
  std::vector<std::byte> found(64 * page_bytes);
  ASSERT_EQ(transfer({.op = operation::read,
                      .slot = first,
                      .length_bytes = static_cast<std::uint32_t>(found.size()),
                      .buffer = found.data()}),
            0);
  std::vector<std::byte> expected(page_bytes);
  for (std::size_t i = 0; i < 64; ++i) {
    fill_page(expected.data(), first + i, model_[first + i]);
    ASSERT_EQ(std::memcmp(found.data() + i * page_bytes, expected.data(), page_bytes), 0) << i;
  }
}

TEST_F(striped, a_batch_is_written_with_half_as_much_parity) {
  open(6, {4, 2});
  static_cast<void>(write_new(64));
  std::uint64_t writes = 0;
  for (const controlled* member : members_) writes += member->writes;
  EXPECT_EQ(writes, 6u) << "16 rows: one transfer for each member";
  EXPECT_EQ(stored(), 6 * group_slots);
  EXPECT_EQ(tested_->counted().pages, 64u);
}

// Whichever members fail, as many as there are parity pages.
TEST_F(striped, any_members_may_fail) {
  open(6, {4, 2});
  static_cast<void>(write_new(64));
  static_cast<void>(write_new(7));
  static_cast<void>(write_new(1));
  for (std::size_t a = 0; a < members_.size(); ++a) {
    for (std::size_t b = a; b < members_.size(); ++b) {
      take_down(a);
      take_down(b);
      expect_all();
      members_[a]->error_code = 0;
      members_[b]->error_code = 0;
      tend_until_whole();
    }
  }
  EXPECT_GT(tested_->counted().decoded_pages, 0u);
}

TEST_F(striped, parts_of_pages_are_decoded_too) {
  open(3, {2, 1});
  const slot_id first = write_new(8);
  std::vector<std::byte> expected(8 * page_bytes);
  for (std::size_t i = 0; i < 8; ++i) fill_page(expected.data() + i * page_bytes, first + i, model_[first + i]);
  for (std::size_t down = 0; down < 3; ++down) {
    take_down(down);
    for (std::uint32_t begin = 3; begin < 7 * page_bytes; begin += 1777) {
      std::vector<std::byte> found(2500);
      ASSERT_EQ(transfer({.op = operation::read,
                          .slot = first,
                          .offset_bytes = begin,
                          .length_bytes = 2500,
                          .buffer = found.data()}),
                0);
      ASSERT_EQ(std::memcmp(found.data(), expected.data() + begin, found.size()), 0) << begin;
    }
    members_[down]->error_code = 0;
    tend_until_whole();
  }
}

// No member tells of them: whoever sleeps until one does would come late.
TEST_F(striped, reads_that_wait_for_a_lane_begin_in_the_poll_that_frees_one) {
  open(3, {2, 1});
  const slot_id first = write_new(64);
  const std::size_t down = holder_of(first).member;
  take_down(down);
  constexpr std::size_t count = 16;  // twice as many as there are lanes
  std::vector<std::byte> found(count * page_bytes);
  std::vector<request> asked;
  for (slot_id slot = first; slot < first + 64 && asked.size() < count; ++slot) {
    if (holder_of(slot).member != down) continue;
    asked.push_back({.op = operation::read, .slot = slot, .buffer = found.data() + asked.size() * page_bytes});
  }
  ASSERT_EQ(queue_->submit(asked), count);
  EXPECT_TRUE(queue_->waits_for_time());
  std::array<completion, count> done;
  EXPECT_EQ(queue_->poll(done), count);
  EXPECT_FALSE(queue_->waits_for_time());
  std::vector<std::byte> expected(page_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(done[i].error_code, 0);
    fill_page(expected.data(), asked[i].slot, model_[asked[i].slot]);
    EXPECT_EQ(std::memcmp(asked[i].buffer, expected.data(), page_bytes), 0) << i;
  }
  members_[0]->waits_for_time = true;
  EXPECT_TRUE(queue_->waits_for_time());
}

// The member that has the pages is away, and so is another one.
TEST_F(striped, a_read_that_waits_for_a_member_waits_for_time) {
  open(3, {2, 1});
  const slot_id first = write_new(64);
  const std::size_t down = holder_of(first).member;
  take_down(down);
  take_down((down + 1) % 3);
  std::vector<std::byte> found(page_bytes);
  const request asked{.op = operation::read, .slot = first, .buffer = found.data()};
  EXPECT_FALSE(queue_->waits_for_time());
  ASSERT_EQ(queue_->submit({&asked, 1}), 1u);
  completion done;
  EXPECT_EQ(queue_->poll({&done, 1}), 0u);
  EXPECT_TRUE(queue_->waits_for_time());
  members_[down]->error_code = 0;
  tend(200 * ms);
  EXPECT_EQ(finish(), 0);
  EXPECT_FALSE(queue_->waits_for_time());
}

TEST_F(striped, numbers_of_a_page_that_must_be_decoded_are_reduced_here) {
  open(3, {2, 1});
  const slot_id first = write_new(4);
  std::vector<std::byte> storage(2 * page_bytes);
  std::byte* const page =
      reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(storage.data()), page_bytes));
  fill_page(page, first, model_[first]);
  const page_hasher hash(5);
  const page_reduction how{{far::detail::number_type::uint64, 0, ~std::uint64_t{0}}, &hash};
  const reduced_page expected = reduce_page(how, page, {page + 64, 800});
  std::vector<std::byte> whole(page_bytes);
  ASSERT_EQ(read(first, whole.data()), 0);
  take_down(last_.source - 1u);
  reduced_page found;
  ASSERT_EQ(transfer({.op = operation::read,
                      .slot = first,
                      .offset_bytes = 64,
                      .length_bytes = 800,
                      .buffer = reinterpret_cast<std::byte*>(&found),
                      .reduce = &how}),
            0);
  EXPECT_EQ(found.numbers, expected.numbers);
  EXPECT_EQ(found.check, expected.check);
}

TEST_F(striped, a_lost_member_is_rebuilt_on_another_and_then_another_may_fail) {
  open(4, {2, 1});
  for (int i = 0; i < 30; ++i) static_cast<void>(write_new(64));
  for (std::size_t down = 0; down < 3; ++down) {
    take_down_for_good(down);
    expect_all();
    members_[down]->error_code = 0;
    members_[down]->forget();
    tend_until_whole();
    expect_all();
  }
  EXPECT_GT(tested_->counted().mended.decoded_rows, 0u);
}

TEST_F(striped, what_was_written_while_a_member_was_away_is_mended_when_it_is_back) {
  open(3, {2, 1});
  static_cast<void>(write_new(64));
  take_down(1);
  static_cast<void>(write_new(64));
  static_cast<void>(write_new(5));
  expect_all();
  members_[1]->error_code = 0;
  tend_until_whole();
  take_down(0);
  expect_all();
}

TEST_F(striped, more_failures_than_parity_are_waited_for_and_then_reported) {
  open(3, {2, 1});
  static_cast<void>(write_new(2));
  take_down(0);
  take_down(1);
  std::vector<std::byte> found(page_bytes);
  const slot_id slot = model_.begin()->first;
  const int first_code = read(slot, found.data());
  const int second_code = read(slot + 1, found.data());
  EXPECT_TRUE(first_code == ETIMEDOUT || second_code == ETIMEDOUT) << "one of them is on the member that is left";
  members_[0]->error_code = 0;
  members_[1]->error_code = 0;
  tend_until_whole();
  expect_all();
  members_[0]->forget();
  members_[1]->forget();
  tend(100 * ms);
  const int lost = read(slot, found.data());
  const int also_lost = read(slot + 1, found.data());
  EXPECT_TRUE(lost == ESTALE || also_lost == ESTALE);
}

TEST_F(striped, a_write_succeeds_when_enough_of_it_is_stored) {
  open(3, {2, 1});
  const slot_id first = tested_->allocate(128).value();
  ASSERT_EQ(write(first, 64), 0);
  members_[2]->error_code = ECONNRESET;
  EXPECT_EQ(write(first + 64, 64), 0) << "two of three";
  expect_all();
  members_[0]->error_code = ECONNRESET;
  tends_ = false;
  EXPECT_EQ(write(first, 1), EIO) << "one of three; what was there before stays";
  members_[0]->error_code = 0;
  members_[2]->error_code = 0;
  tend_until_whole();
  expect_all();
}

// Two of three would be enough, but one has been restarted since.
TEST_F(striped, a_success_on_a_member_that_has_forgotten_since_is_none) {
  open(3, {2, 1});
  tends_ = false;
  const slot_id first = tested_->allocate(2).value();
  members_[1]->error_code = ECONNRESET;
  members_[2]->holds_back_writes = true;
  std::vector<std::byte> bytes(2 * page_bytes);
  const request one{.op = operation::write, .slot = first, .length_bytes = 2 * page_bytes, .buffer = bytes.data()};
  ASSERT_EQ(queue_->submit({&one, 1}), 1u);
  completion done;
  ASSERT_EQ(queue_->poll({&done, 1}), 0u);
  members_[0]->forget();
  members_[2]->holds_back_writes = false;
  EXPECT_EQ(finish(), EIO);
}

// Pages are freed and written at random, and all members together hold no more than is stated.
TEST_F(striped, memory_is_bounded_while_pages_are_freed_and_written) {
  for (const parity_shape shape : {parity_shape{4, 2}, parity_shape{2, 1}}) {
    queue_ = nullptr;
    tested_ = nullptr;
    members_.clear();
    model_.clear();
    open(shape.places(), shape, 16 * group_slots);
    std::mt19937_64 random(11);
    const std::uint64_t wanted = 8 * group_slots * shape.data;
    while (model_.size() < wanted) static_cast<void>(write_new(64));
    const double ideal = static_cast<double>(shape.places()) / static_cast<double>(shape.data);
    tend(200 * ms);
    EXPECT_LE(static_cast<double>(stored()), ideal * static_cast<double>(model_.size() + group_slots * shape.data));
    for (int round = 0; round < 300; ++round) {
      for (int i = 0; i < 64; ++i) {
        auto victim = model_.lower_bound(random() % (model_.rbegin()->first + 1));
        free(victim->first);
      }
      static_cast<void>(write_new(round % 3 == 0 ? 50 : 64));
      if (round % 3 == 0) static_cast<void>(write_new(14));
    }
    for (int i = 0; i < 400; ++i) tend(10 * ms);
    const double bound = ideal * (static_cast<double>(model_.size()) * (1 + most_garbage) +
                                  static_cast<double>((groups_to_spare + 1) * group_slots * shape.data));
    EXPECT_LE(static_cast<double>(stored()), bound);
    expect_all();
    tested_->validate();
    while (!model_.empty()) free(model_.begin()->first);
    tend(1000 * ms);
    EXPECT_LE(stored(), 2 * shape.places() * group_slots) << "what is not needed is given back";
  }
}

TEST_F(striped, a_full_tier_says_so_and_makes_room_out_of_garbage) {
  open(6, {4, 2}, 4 * group_slots);
  const std::uint64_t total = tested_->report().total_slots;
  while (model_.size() + 64 <= total) static_cast<void>(write_new(64));
  EXPECT_EQ(tested_->allocate(64).error().code, ENOSPC);
  std::mt19937_64 random(17);
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 64; ++i) {
      auto victim = model_.lower_bound(random() % (model_.rbegin()->first + 1));
      free(victim->first);
    }
    result<slot_id> first = tested_->allocate(64);
    for (int i = 0; i < 1000 && !first.ok() && first.error().code == EAGAIN; ++i) {
      tend(ms);
      first = tested_->allocate(64);
    }
    ASSERT_TRUE(first.ok()) << first.error().message << " in round " << round;
    ASSERT_EQ(write(first.value(), 64), 0) << round;
  }
  expect_all();
  EXPECT_GT(tested_->counted().moved_pages, 0u);
}

TEST_F(striped, nothing_is_moved_while_children_read) {
  open(3, {2, 1}, 16 * group_slots);
  while (model_.size() < 6 * group_slots * 2) static_cast<void>(write_new(64));
  tested_->keep_in_place(true);
  for (slot_id slot = 0; slot < 6 * group_slots * 2; ++slot) {
    if (slot % 5 != 0) free(slot);
  }
  tend(1000 * ms);
  EXPECT_EQ(tested_->counted().moved_pages, 0u);
  tested_->keep_in_place(false);
  tend(1000 * ms);
  EXPECT_GT(tested_->counted().moved_pages, 0u);
  expect_all();
}

TEST_F(striped, a_child_reads_what_its_parent_had_and_decodes_what_has_moved) {
  open(4, {2, 1});
  for (int i = 0; i < 10; ++i) static_cast<void>(write_new(64));
  const std::size_t victim = holder_of(model_.begin()->first).member;
  const std::atomic<std::uint64_t>& held = tested_->books().members.at(victim).extents;
  const std::uint64_t reads_before = members_[victim]->reads;
  const auto give_up = [&] {
    take_down_for_good(victim);
    for (int i = 0; i < 100 && held.load() > 0; ++i) tend(100 * ms);
    EXPECT_EQ(held.load(), 0u) << "its pages are on others";
  };
  EXPECT_EQ(read_in_child(give_up, [&] { return members_[victim]->reads == reads_before ? 0 : 3; }), 0)
      << "3: it has read from a member that others use by now";
}

TEST_F(striped, a_child_goes_on_reading_when_its_parent_gives_up_empty_groups) {
  open(3, {2, 1}, 16 * group_slots);
  for (int i = 0; i < 10; ++i) static_cast<void>(write_new(64));
  const auto fill_and_free = [&] {
    std::vector<slot_id> slots;
    for (int i = 0; i < 96; ++i) slots.push_back(write_new(64));
    for (const slot_id first : slots) tested_->free(first, 64);
    tend(2000 * ms);
    EXPECT_GT(tested_->counted().mended.removed_groups, 0u);
  };
  EXPECT_EQ(read_in_child(fill_and_free, [] { return 0; }), 0);
}

TEST_F(striped, a_damaged_page_is_avoided_decoded_and_written_again) {
  open(3, {2, 1});
  const slot_id first = write_new(64);
  std::vector<std::byte> found(page_bytes);
  std::vector<std::byte> expected(page_bytes);
  fill_page(expected.data(), first, model_[first]);
  ASSERT_EQ(read(first, found.data()), 0);
  const std::uint8_t wrong = last_.source;
  ASSERT_NE(wrong, 0);
  members_[wrong - 1u]->damage(holder_of(first).first + tested_->books().table.locate(place_of(first)).row);
  ASSERT_EQ(read(first, found.data()), 0);
  EXPECT_FALSE(found == expected);
  ASSERT_EQ(read(first, found.data(), std::uint64_t{1} << (wrong - 1)), 0);
  EXPECT_TRUE(found == expected);
  EXPECT_EQ(last_.source, first_decoded_source);
  tested_->report_damage(first, wrong, last_.source, damage::wrong_bytes);
  tend_until_whole();
  ASSERT_EQ(read(first, found.data()), 0);
  EXPECT_TRUE(found == expected);
  EXPECT_EQ(last_.source, wrong);
  EXPECT_EQ(tested_->report().damaged_copies, 1u);
}

// Any two pages of a row are damaged, so some of the others say what the page is.
TEST_F(striped, a_page_is_computed_from_whichever_others_are_right) {
  open(6, {4, 2});
  const slot_id slot = write_new(64);
  std::vector<std::byte> expected(page_bytes);
  fill_page(expected.data(), slot, model_[slot]);
  const located where = tested_->books().table.locate(place_of(slot));
  const std::array<holder, most_holders> holders = [&] {
    const lock_guard guard(tested_->books().table.lock);
    return tested_->books().table.group_at(where.group).holders;
  }();
  const auto damage = [&](std::size_t place) {
    members_[holders[place].member]->damage(holders[place].first + where.row);
  };
  damage(where.column);
  for (std::size_t place = 0; place < 6; ++place) {
    if (place == where.column) continue;
    damage(place);
    std::vector<std::byte> found(page_bytes);
    std::uint64_t avoid = 0;
    for (int tries = 0; tries < 6 && found != expected; ++tries) {
      ASSERT_EQ(read(slot, found.data(), avoid), 0);
      ASSERT_EQ(avoid >> (last_.source - 1) & 1, 0u) << "it is asked twice";
      avoid |= std::uint64_t{1} << (last_.source - 1);
    }
    EXPECT_TRUE(found == expected) << "place " << place;
    damage(place);  // it is right again
  }
}

// The page that it is a part of cannot be read.
TEST_F(striped, a_part_of_a_page_that_cannot_be_read_fails_at_once) {
  open(3, {2, 1});
  const slot_id slot = write_new(2);
  const std::size_t holding = holder_of(slot).member;
  take_down_for_good(holding);
  take_down_for_good(holding == 0 ? 1 : 0);
  std::vector<std::byte> bytes(page_bytes);
  EXPECT_EQ(
      transfer({.op = operation::write, .slot = slot, .offset_bytes = 100, .length_bytes = 50, .buffer = bytes.data()}),
      EIO);
}

TEST_F(striped, writes_without_rows_wait_once) {
  open(3, {2, 1}, group_slots);
  const slot_id first = tested_->allocate(512).value();
  tends_ = false;
  for (slot_id slot = first; slot < first + 440; ++slot) ASSERT_EQ(write(slot, 1), 0);
  const std::uint64_t before = clock_.now;
  EXPECT_EQ(write(first + 440, 64), EIO) << "two strips, and rows for none";
  EXPECT_GE(clock_.now - before, 1000 * ms);
  EXPECT_LT(clock_.now - before, 1100 * ms);
  const std::uint64_t between = clock_.now;
  EXPECT_EQ(write(first + 440, 64), EIO);
  EXPECT_GE(clock_.now - between, 1000 * ms) << "the next ones wait, too";
}

// Five of eight groups stay because of one page, until that can be read again.
TEST_F(striped, pages_that_cannot_be_read_keep_no_others_from_being_moved) {
  open(3, {2, 1}, 16 * group_slots);
  std::vector<slot_id> firsts;
  while (model_.size() < 8 * group_slots * 2) firsts.push_back(write_new(64));
  for (std::size_t i = 0; i < 5; ++i) {
    const slot_id gone = firsts[i * 16];
    for (controlled* member : members_) {
      member->unreadable.insert(holder_of(gone).first + tested_->books().table.locate(place_of(gone)).row);
    }
  }
  for (const slot_id first : firsts) {
    for (slot_id slot = first + 8; slot < first + 64; ++slot) free(slot);
  }
  tend(900 * ms);
  for (std::uint64_t number = 0; number < 5; ++number) {
    const lock_guard guard(tested_->books().table.lock);
    EXPECT_EQ(tested_->books().table.group_at(number).live_pages, 1u);
  }
  for (controlled* member : members_) member->unreadable.clear();
  tend(2000 * ms);
  EXPECT_LE(stored(), 4 * 3 * group_slots);
  expect_all();
}

// The compactor moves a page that somebody is reading; its old row holds nobody's page then.
TEST_F(striped, rows_are_not_written_anew_while_somebody_reads_them) {
  open(3, {2, 1});
  const slot_id first = write_new(64);
  for (slot_id slot = first + 2; slot < first + 64; ++slot) free(slot);
  const page_place before = place_of(first);
  tested_->make_room();
  for (controlled* member : members_) member->holds_back_writes = true;
  tend(20 * ms);
  for (controlled* member : members_) member->holds_back_reads = true;
  std::vector<std::byte> found(page_bytes);
  const request one{.op = operation::read, .slot = first, .buffer = found.data()};
  ASSERT_EQ(queue_->submit({&one, 1}), 1u);
  for (controlled* member : members_) member->holds_back_writes = false;
  tend(20 * ms);
  ASSERT_NE(place_of(first), before) << "it has moved, while it is read where it was";
  auto other = tested_->open_channel(4).value();
  std::swap(queue_, other);
  // Single pages take the first rows that are free.
  for (int i = 0; i < 20; ++i) static_cast<void>(write_new(1));
  std::swap(queue_, other);
  for (controlled* member : members_) member->holds_back_reads = false;
  ASSERT_EQ(finish(), 0);
  std::vector<std::byte> expected(page_bytes);
  fill_page(expected.data(), first, model_[first]);
  EXPECT_TRUE(found == expected);
}

TEST_F(striped, refusals_say_what_to_write) {
  std::vector<std::unique_ptr<backend>> two;
  two.push_back(make_member(512));
  two.push_back(make_member(512));
  const auto refused = striped_backend::create(std::move(two), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "parity=2+1 takes between 3 and 55 servers, not 2");
  open(3, {2, 1});
  EXPECT_EQ(tested_->remove_server("m2", removal::begin).error().message,
            "server m2 cannot be removed: parity=2+1 needs 3 servers, and 2 would be left; add one first (farheap "
            "add-server PID HOST:PORT)");
}

}  // namespace
}  // namespace far::backend
