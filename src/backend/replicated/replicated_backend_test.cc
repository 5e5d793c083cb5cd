#include "backend/replicated/replicated_backend.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/slot_allocator.h"

namespace far::backend {
namespace {

// A member in memory whose transfers wait until the test lets them go.
class controlled final : public backend {
 public:
  explicit controlled(std::string name, std::uint64_t slots = 8192)
      : name_(std::move(name)), slots_(slots), store_(slots * page_bytes) {
    slots_.extend(slots);
  }

  bool holds_back_reads = false;
  bool holds_back_writes = false;
  int error_code = 0;          // of transfers that run from now on
  bool has_forgotten = false;  // ESTALE for slots allocated before forget()
  int allocate_code = 0;
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t latency_ns = 0;
  std::function<void()> before_free;

  void forget() {
    ++epoch_;
    std::fill(store_.begin(), store_.end(), std::byte{0xdb});
  }
  [[nodiscard]] std::uint64_t used() const { return slots_.used(); }
  [[nodiscard]] std::byte at(slot_id slot) const { return store_[slot * page_bytes]; }

  result<slot_id> allocate(std::size_t count) override {
    if (allocate_code != 0) return error{"no", allocate_code};
    const auto first = slots_.allocate(count);
    if (!first) return out_of_slots();
    for (std::size_t i = 0; i < count; ++i) epochs_[*first + i] = epoch_;
    return *first;
  }
  void free(slot_id first, std::size_t count) override {
    if (before_free) before_free();
    slots_.free(first, count);
  }
  result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  capacity report() const override { return {slots_.capacity(), slots_.used()}; }
  speed expected_speed() const override { return {latency_ns, 0}; }
  std::string describe() const override { return name_; }

 private:
  class queue;
  const std::string name_;
  slot_allocator slots_;
  std::vector<std::byte> store_;
  std::map<slot_id, int> epochs_;
  int epoch_ = 0;
};

class controlled::queue final : public channel {
 public:
  queue(controlled& owner, std::size_t depth) : owner_(owner), depth_(depth) {}
  std::size_t submit(std::span<const request> batch) override {
    const std::size_t taken = std::min(batch.size(), depth_ - waiting_.size());
    for (const request& each : batch.first(taken)) {
      waiting_.push_back(each);
      ++(each.op == operation::read ? owner_.reads : owner_.writes);
    }
    return taken;
  }
  std::size_t poll(std::span<completion> done) override {
    std::size_t count = 0;
    for (std::size_t i = 0; i < waiting_.size() && count < done.size();) {
      const request what = waiting_[i];
      if (what.op == operation::read ? owner_.holds_back_reads : owner_.holds_back_writes) {
        ++i;
        continue;
      }
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      done[count++] = {what.cookie, run(what)};
    }
    return count;
  }
  void wait(std::uint64_t /*timeout_ns*/) override {}
  std::size_t in_flight() const override { return waiting_.size(); }

 private:
  int run(const request& what) {
    if (owner_.error_code != 0) return owner_.error_code;
    if (owner_.epochs_[what.slot] != owner_.epoch_) return ESTALE;
    std::byte* const stored = owner_.store_.data() + what.slot * page_bytes + what.offset_bytes;
    if (what.op == operation::read) {
      std::copy_n(stored, what.length_bytes, what.buffer);
    } else {
      std::copy_n(what.buffer, what.length_bytes, stored);
    }
    return 0;
  }

  controlled& owner_;
  const std::size_t depth_;
  std::vector<request> waiting_;
};

result<std::unique_ptr<channel>> controlled::open_channel(std::size_t depth) {
  return std::unique_ptr<channel>(std::make_unique<queue>(*this, depth));
}

class manual_clock final : public platform::clock {
 public:
  std::uint64_t now_ns() const override { return now; }
  std::uint64_t now = 1'000'000'000;
};

constexpr std::uint64_t ms = 1'000'000;

class replicated : public testing::Test {
 protected:
  void open(std::size_t count, std::size_t copies, std::uint64_t member_slots = 8192) {
    std::vector<std::unique_ptr<backend>> owned;
    for (std::size_t i = 0; i < count; ++i) {
      auto made = std::make_unique<controlled>("m" + std::to_string(i), member_slots);
      members_.push_back(made.get());
      owned.push_back(std::move(made));
    }
    replicated_options chosen;
    chosen.copies = copies;
    chosen.clock = &clock_;
    chosen.lost_after_ns = 1000 * ms;
    tested_ = std::move(replicated_backend::create(std::move(owned), chosen)).value();
    queue_ = tested_->open_channel(16).value();
  }
  ~replicated() override {
    if (tested_ != nullptr) tested_->validate();
  }

  int transfer(operation op, slot_id slot, std::byte* bytes, std::size_t count = 1) {
    submit(op, slot, bytes, count);
    return finish();
  }
  void submit(operation op, slot_id slot, std::byte* bytes, std::size_t count = 1) {
    const request one{.op = op,
                      .slot = slot,
                      .offset_bytes = 0,
                      .length_bytes = static_cast<std::uint32_t>(count * page_bytes),
                      .buffer = bytes,
                      .cookie = 77};
    ASSERT_EQ(queue_->submit({&one, 1}), 1u);
  }
  // -1: nothing has ended.
  int poll_once() {
    completion done;
    return queue_->poll({&done, 1}) == 1 ? done.error_code : -1;
  }
  int finish() {
    for (int polls = 0; polls < 10'000; ++polls) {
      const int code = poll_once();
      if (code >= 0) return code;
      clock_.now += ms;
    }
    ADD_FAILURE() << "a transfer never ends";
    return -1;
  }
  int write(slot_id slot, int value) {
    page_.fill(static_cast<std::byte>(value));
    return transfer(operation::write, slot, page_.data());
  }
  // What the slot holds, or -1.
  int read(slot_id slot) {
    page_.fill(std::byte{0xee});
    if (transfer(operation::read, slot, page_.data()) != 0) return -1;
    return static_cast<int>(page_[7]);
  }
  void tend(std::uint64_t time_ns) {
    for (const std::uint64_t end = clock_.now + time_ns; clock_.now < end; clock_.now += ms) {
      static_cast<void>(tested_->tend());
    }
  }
  // Member `index` does not answer, and everybody knows.
  void take_down(std::size_t index) {
    members_[index]->error_code = ETIMEDOUT;
    tend(3000 * ms);
  }
  std::size_t holder(slot_id slot, std::size_t place) {
    return tested_->books().group_at(slot / group_slots).copies[place].member;
  }

  manual_clock clock_;
  std::vector<controlled*> members_;
  std::unique_ptr<replicated_backend> tested_;
  std::unique_ptr<channel> queue_;
  std::array<std::byte, page_bytes> page_{};
};

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
  for (const controlled* each : members_) EXPECT_GT(each->used(), 2 * group_slots);
  EXPECT_EQ(tested_->report().used_slots, 24 * group_slots);
  for (const slot_id first : firsts) tested_->free(first, group_slots);
  std::uint64_t kept = 0;
  for (const controlled* each : members_) kept += each->used();
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
  for (const auto& each : tested_->members()) {
    if (each.name == "m0") continue;
    EXPECT_EQ(each.groups, 3u);
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

TEST_F(replicated, without_copies_a_paused_member_is_waited_for_and_a_lost_one_is_an_error) {
  open(1, 1);
  const slot_id slot = tested_->allocate(1).value();
  ASSERT_EQ(write(slot, 5), 0);
  members_[0]->error_code = ETIMEDOUT;
  EXPECT_EQ(read(slot), -1) << "the read that notices";
  submit(operation::read, slot, page_.data());
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(poll_once(), -1) << "waits";
    tend(2 * ms);
  }
  members_[0]->error_code = 0;
  tend(200 * ms);
  EXPECT_EQ(finish(), 0);
  EXPECT_EQ(page_[0], std::byte{5});
  take_down(0);
  EXPECT_EQ(tested_->members()[0].state, member_state::lost);
  EXPECT_EQ(read(slot), -1);
  EXPECT_NE(tested_->describe().find("m0 (lost)"), std::string::npos) << tested_->describe();
  members_[0]->error_code = 0;
  tend(200 * ms);
  EXPECT_EQ(read(slot), 5) << "it came back after all";
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
    // What the parent did with the extent of place 0 does not show here: it must not be read.
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
