// The engine over two copies, of which one holds other bytes than were written and goes on to return them: it must be
// read once, and not for a second time.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/replicated/replicated_backend.h"
#include "engine/engine.h"
#include "stepped_engine.h"
#include "tests/support/controlled_members.h"

namespace far::simulation {
namespace {

using backend::controlled;
using engine::outcome;
using engine::state;

constexpr std::uint64_t heap_pages = 512;

class damaged_copies : public stepped_engine, public testing::Test {
 protected:
  explicit damaged_copies(std::uint64_t scrubbed_pages_per_second = 0) : stepped_engine(heap_pages) {
    std::vector<std::unique_ptr<backend::backend>> owned;
    for (const char* name : {"m0", "m1"}) {
      auto member = std::make_unique<controlled>(name);
      members_.push_back(member.get());
      owned.push_back(std::move(member));
    }
    backend::replicated_options chosen;
    chosen.copies = 2;
    chosen.clock = &clock_;
    chosen.scrubbed_pages_per_second = scrubbed_pages_per_second;
    far_ = &keep(std::move(backend::replicated_backend::create(std::move(owned), chosen)).value());
    start({.budget_pages = 256});
  }
  ~damaged_copies() override {
    engine_->validate();
    far_->validate();
  }

  void work_meanwhile(std::uint64_t /*step_ns*/) override {
    static_cast<void>(engine_->tending().tend());
    stepped_engine::work_meanwhile(100'000);
  }
  void help() { work_meanwhile(0); }
  void write_and_evict(page_range range) {
    ASSERT_TRUE(engine_->ranges().allocate_guarded(range));
    write(range);
    evict(range);
  }
  void evict(page_range range) {
    engine_->eviction().evict(range);
    for (page_id page = range.first; page < range.end(); ++page) ASSERT_EQ(word_of(page).where(), state::remote);
  }
  void wait_until_whole() {
    for (int steps = 0; steps < 100'000 && !far_->is_whole(); ++steps) help();
    ASSERT_TRUE(far_->is_whole());
  }
  [[nodiscard]] const backend::copy& copy_of(page_id page, std::size_t place) const {
    return far_->books().group_at(word_of(page).place() / backend::group_slots).copies[place];
  }
  void damage(page_id page, std::size_t place) {
    const backend::copy& held = copy_of(page, place);
    members_[held.member]->damage(held.first + word_of(page).place() % backend::group_slots);
  }
  void refuse(page_id page, std::size_t place) {
    const backend::copy& held = copy_of(page, place);
    members_[held.member]->unreadable.insert(held.first + word_of(page).place() % backend::group_slots);
  }
  // The place of the copy that reads of the page go to: both are as fast.
  [[nodiscard]] std::size_t place_of_reads(page_id page) {
    const std::unique_ptr<backend::channel> queue = far_->open_channel(1).value();
    std::vector<std::byte> bytes(page_bytes);
    const backend::request one{
        .op = backend::operation::read, .slot = word_of(page).place(), .buffer = bytes.data(), .cookie = 1};
    EXPECT_EQ(queue->submit({&one, 1}), 1u);
    backend::completion done;
    while (queue->poll({&done, 1}) == 0) queue->wait(1000);
    return copy_of(page, 0).member + 1u == done.source ? 0 : 1;
  }

  std::vector<controlled*> members_;
  backend::replicated_backend* far_ = nullptr;
};

class scrubbed_copies : public damaged_copies {
 protected:
  scrubbed_copies() : damaged_copies(1000) {}

  // Looks at pages that are Remote, as often as it takes to look at each once.
  void scrub(std::uint64_t pages) {
    const std::uint64_t until = engine_->snapshot().scrubbed_pages + pages + heap_pages;
    for (int steps = 0; steps < 1'000'000 && engine_->snapshot().scrubbed_pages < until; ++steps) {
      static_cast<void>(engine_->tending().tend());
      clock_.advance_to(clock_.now_ns() + 1'000'000);
    }
    ASSERT_GE(engine_->snapshot().scrubbed_pages, until);
  }
};

// The copies of pages that nobody reads; when the good one is lost, the other one is right.
TEST_F(scrubbed_copies, damage_that_nobody_has_come_across_is_mended) {
  const page_range range{0, 100};
  write_and_evict(range);
  for (page_id page = range.first; page < range.end(); page += 3) damage(page, page % 2);
  scrub(range.count);
  EXPECT_EQ(engine_->snapshot().damaged_copies, 34u);
  EXPECT_EQ(engine_->snapshot().misses, 0u);
  wait_until_whole();
  for (const std::size_t lost : {0u, 1u}) {
    members_[lost]->error_code = ETIMEDOUT;
    check(range);
    members_[lost]->error_code = 0;
    evict(range);
    wait_until_whole();
  }
  EXPECT_EQ(engine_->snapshot().lost_pages, 0u);
}

TEST_F(scrubbed_copies, right_copies_are_left_alone) {
  const page_range range{0, 100};
  write_and_evict(range);
  const std::uint64_t writes = members_[0]->writes + members_[1]->writes;
  scrub(range.count);
  EXPECT_EQ(engine_->snapshot().damaged_copies, 0u);
  EXPECT_EQ(members_[0]->writes + members_[1]->writes, writes);
  EXPECT_GE(members_[0]->reads, range.count);
  EXPECT_GE(members_[1]->reads, range.count);
}

// A page that cannot be mended is come across again in each round, which may take a second.
TEST_F(scrubbed_copies, a_page_without_a_right_copy_is_told_but_not_all_the_time) {
  write_and_evict({0, 4});
  for (const std::size_t place : {0u, 1u}) damage(1, place);
  testing::internal::CaptureStderr();
  scrub(1000);
  const std::string log = testing::internal::GetCapturedStderr();
  const auto lines = std::count(log.begin(), log.end(), '\n');
  EXPECT_GE(lines, 1);
  EXPECT_LE(lines, 10);
  EXPECT_NE(log.find("page 1 of the far heap is damaged in all of its copies"), std::string::npos) << log;
  EXPECT_EQ(engine_->snapshot().damaged_copies, 0u);
}

// It reads no more than it may, and nothing where it is not wanted.
TEST_F(scrubbed_copies, keeps_to_its_rate) {
  write_and_evict({0, 100});
  const std::uint64_t before = engine_->snapshot().scrubbed_pages;
  const std::uint64_t since_ns = clock_.now_ns();
  while (clock_.now_ns() - since_ns < 3'000'000'000) {
    static_cast<void>(engine_->tending().tend());
    clock_.advance_to(clock_.now_ns() + 1'000'000);
  }
  const std::uint64_t scrubbed = engine_->snapshot().scrubbed_pages - before;
  EXPECT_LE(scrubbed, 3000u + 32u);
  EXPECT_GE(scrubbed, 100u);
}

TEST_F(damaged_copies, nothing_is_scrubbed_unless_it_is_wanted) {
  write_and_evict({0, 10});
  const std::uint64_t reads = members_[0]->reads + members_[1]->reads;
  for (int steps = 0; steps < 1000; ++steps) help();
  EXPECT_EQ(members_[0]->reads + members_[1]->reads, reads);
  EXPECT_EQ(engine_->snapshot().scrubbed_pages, 0u);
}

// Bytes read while a page comes in, is written and leaves again say nothing of its copies.
TEST_F(scrubbed_copies, pages_may_move_while_they_are_scrubbed) {
  const page_range range{0, 64};
  write_and_evict(range);
  for (int rounds = 0; rounds < 20; ++rounds) {
    for (controlled* member : members_) member->holds_back_reads = true;
    for (int steps = 0; steps < 40; ++steps) help();
    // The pages come in by writes of all of their bytes, so nothing is read but the reads that are held back.
    for (controlled* member : members_) member->holds_back_reads = false;
    write(range);
    evict(range);
    engine_->validate();
  }
  EXPECT_EQ(engine_->snapshot().damaged_copies, 0u);
  check(range);
}

// A failure that only the scrubber meets keeps nobody waiting, and loses nothing.
TEST_F(scrubbed_copies, a_copy_that_only_the_scrubber_misses_is_no_trouble_of_the_program) {
  const page_range range{0, 16};
  write_and_evict(range);
  testing::internal::CaptureStderr();
  const auto scrub_for = [&](std::uint64_t duration_ns) {
    const std::uint64_t until_ns = clock_.now_ns() + duration_ns;
    while (clock_.now_ns() < until_ns) {
      static_cast<void>(engine_->tending().tend());
      clock_.advance_to(clock_.now_ns() + 1'000'000);
    }
  };
  members_[1]->error_code = ETIMEDOUT;
  scrub_for(60'000'000'000);
  members_[1]->error_code = 0;
  wait_until_whole();
  scrub_for(1'000'000'000);
  // The second reads are under way when the server is restarted.
  members_[1]->holds_back_reads = true;
  scrub_for(2'000'000'000);
  members_[1]->forget();
  members_[1]->holds_back_reads = false;
  scrub_for(3'000'000'000);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("the program waits"), std::string::npos) << log;
  EXPECT_EQ(log.find("cannot be read"), std::string::npos) << log;
  check(range);
}

// One copy has been read before the page was written anew, and the other one arrives afterwards. Neither has been
// damaged, and the slot that both were read from is free in the end.
TEST_F(scrubbed_copies, a_page_may_be_written_anew_between_the_reads_of_its_copies) {
  const page_range range{0, 8};
  write_and_evict(range);
  const auto hold_back = [&](bool wanted) {
    for (controlled* member : members_) member->holds_back_reads = wanted;
  };
  const auto reads = [&] { return members_[0]->reads + members_[1]->reads; };
  hold_back(true);
  const std::uint64_t before = reads();
  for (int steps = 0; steps < 100'000 && reads() < before + range.count; ++steps) help();
  hold_back(false);
  static_cast<void>(engine_->tending().tend());  // the first reads arrive, and the second ones begin
  hold_back(true);
  ASSERT_GE(reads(), before + 2 * range.count);
  const std::uint64_t used_slots = far_->report().used_slots;
  expected_.begin_discard(range);
  engine_->ranges().discard(range);
  expected_.end_discard(range, false);
  EXPECT_EQ(far_->report().used_slots, used_slots) << "the slots are being read";
  for (page_id page = range.first; page < range.end(); ++page) {
    ASSERT_EQ(resolve(page, true), outcome::resolved);
    expected_.write(page, 0, kernel_.bytes(page));
  }
  evict(range);
  hold_back(false);
  for (int steps = 0; steps < 100; ++steps) static_cast<void>(engine_->tending().tend());
  EXPECT_EQ(engine_->snapshot().damaged_copies, 0u);
  EXPECT_EQ(far_->report().used_slots, range.count);
  check(range);
}

TEST_F(damaged_copies, a_copy_that_stays_wrong_is_read_once_and_written_again) {
  const page_range range{0, 8};
  write_and_evict(range);
  const page_id page = 3;
  const std::size_t wrong = place_of_reads(page);
  damage(page, wrong);
  check({page, 1});
  EXPECT_EQ(engine_->snapshot().backend_errors, 1u) << "the wrong copy was read again";
  EXPECT_EQ(engine_->snapshot().damaged_copies, 1u);
  EXPECT_EQ(engine_->snapshot().lost_pages, 0u);

  // The copy is right now, and there is no other.
  wait_until_whole();
  evict({page, 1});
  members_[copy_of(page, 1 - wrong).member]->error_code = ETIMEDOUT;
  check({page, 1});
  EXPECT_EQ(engine_->snapshot().lost_pages, 0u);
  EXPECT_EQ(engine_->snapshot().damaged_copies, 1u);
}

// A disk does not return what one server holds; nobody takes that copy for a good one any longer than it takes to find
// out.
TEST_F(damaged_copies, a_copy_that_cannot_be_read_is_written_again) {
  const page_range range{0, 8};
  write_and_evict(range);
  const page_id page = 3;
  const std::size_t bad = place_of_reads(page);
  refuse(page, bad);
  check({page, 1});
  EXPECT_EQ(engine_->snapshot().backend_errors, 0u) << "another copy was read at once";
  EXPECT_EQ(engine_->snapshot().damaged_copies, 1u);
  wait_until_whole();
  evict({page, 1});
  members_[copy_of(page, 1 - bad).member]->error_code = ETIMEDOUT;
  check({page, 1});
  EXPECT_EQ(engine_->snapshot().lost_pages, 0u);
}

// One is wrong, and the other cannot be read now: it stays, and is given time, and is right when it can be read.
TEST_F(damaged_copies, a_copy_that_cannot_be_read_is_not_given_up_for_a_wrong_one) {
  const page_range range{0, 2};
  write_and_evict(range);
  const std::size_t bad = place_of_reads(1);
  controlled& refusing = *members_[copy_of(1, bad).member];
  refuse(1, bad);
  damage(1, 1 - bad);
  for (const std::uint64_t until_ns = clock_.now_ns() + 9'000'000'000; clock_.now_ns() < until_ns; help()) {
    ASSERT_NE(miss(1, false), outcome::lost);
  }
  EXPECT_EQ(engine_->snapshot().damaged_copies, 0u);
  refusing.unreadable.clear();
  check(range);
  EXPECT_EQ(engine_->snapshot().damaged_copies, 1u) << "the wrong one";
}

TEST_F(scrubbed_copies, copies_that_cannot_be_read_are_found_and_written_again) {
  const page_range range{0, 100};
  write_and_evict(range);
  for (page_id page = range.first; page < range.end(); page += 3) refuse(page, page % 2);
  scrub(range.count);
  EXPECT_EQ(engine_->snapshot().damaged_copies, 34u);
  wait_until_whole();
  for (const controlled* member : members_) EXPECT_TRUE(member->unreadable.empty());
}

// Pages that are read ahead are let go when they are wrong; those that somebody needs are read elsewhere, one by one.
TEST_F(damaged_copies, a_whole_copy_may_be_wrong) {
  const page_range range{0, 32};
  write_and_evict(range);
  const std::size_t wrong = place_of_reads(0);
  for (page_id page = range.first; page < range.end(); ++page) damage(page, wrong);
  check(range);
  EXPECT_GE(engine_->snapshot().damaged_copies, 1u);
  EXPECT_EQ(engine_->snapshot().lost_pages, 0u);
  wait_until_whole();
}

// Nothing right can be had: the page is lost, and neither copy is taken for the other's better.
TEST_F(damaged_copies, a_page_whose_copies_are_both_wrong_is_lost_and_none_is_written_again) {
  const page_range range{0, 2};
  write_and_evict(range);
  damage(1, 0);
  damage(1, 1);
  EXPECT_EQ(resolve(1, false), outcome::lost);
  EXPECT_EQ(engine_->snapshot().damaged_copies, 0u);
  EXPECT_EQ(engine_->snapshot().lost_pages, 1u);
  check({0, 1});
}

}  // namespace
}  // namespace far::simulation
