// A striped far tier over members that do what the test says, and a model of what was written to it.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/striped/striped_backend.h"
#include "tests/support/controlled_members.h"

namespace far::backend {

inline constexpr std::uint64_t no_value = 0;

inline void fill_page(std::byte* page, slot_id slot, std::uint64_t value) {
  std::uint64_t word = (slot + 1) * 0x9e3779b97f4a7c15u ^ value;
  for (std::size_t i = 0; i < page_bytes; i += sizeof word) {
    word = word * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(page + i, &word, sizeof word);
  }
}

// The slots of a test's tier, and what is in them.
class striped : public testing::Test {
 protected:
  ~striped() override {
    if (tested_ != nullptr) tested_->validate();
  }
  std::unique_ptr<controlled> make_member(std::uint64_t slots) {
    auto added = std::make_unique<controlled>("m" + std::to_string(members_.size()), slots);
    members_.push_back(added.get());
    return added;
  }
  void open(std::size_t count, parity_shape shape, std::uint64_t member_slots = 4096) {
    std::vector<std::unique_ptr<backend>> owned;
    for (std::size_t i = 0; i < count; ++i) owned.push_back(make_member(member_slots));
    open(std::move(owned), shape);
  }
  void open_in(std::vector<std::string> zones, parity_shape shape) {
    std::vector<std::unique_ptr<backend>> owned;
    for (std::size_t i = 0; i < zones.size(); ++i) owned.push_back(make_member(4096));
    open(std::move(owned), shape, std::move(zones));
  }
  void open(std::vector<std::unique_ptr<backend>> owned, parity_shape shape, std::vector<std::string> zones = {}) {
    striped_options chosen;
    chosen.zones = std::move(zones);
    chosen.shape = shape;
    chosen.clock = &clock_;
    chosen.lost_after_ns = 1000 * ms;
    auto created = striped_backend::create(std::move(owned), chosen);
    ASSERT_TRUE(created.ok()) << created.error().message;
    tested_ = std::move(created).value();
    queue_ = tested_->open_channel(16).value();
  }
  result<void> add(std::uint64_t slots = 4096) {
    auto added = make_member(slots);
    std::string name = added->describe();
    return tested_->add_member(std::move(added), std::move(name));
  }

  int finish() {
    for (int polls = 0; polls < 20'000; ++polls) {
      completion done;
      if (queue_->poll({&done, 1}) == 1) {
        last_ = done;
        return done.error_code;
      }
      clock_.now += ms / 10;
      if (tends_) static_cast<void>(tested_->tend());
    }
    ADD_FAILURE() << "a transfer never ends";
    return -1;
  }
  int transfer(request one) {
    EXPECT_EQ(queue_->submit({&one, 1}), 1u);
    return finish();
  }
  // Writes new values to adjacent slots, as one request.
  int write(slot_id first, std::size_t count) {
    std::vector<std::byte> bytes(count * page_bytes);
    for (std::size_t i = 0; i < count; ++i) fill_page(bytes.data() + i * page_bytes, first + i, ++values_);
    const int code = transfer({.op = operation::write,
                               .slot = first,
                               .length_bytes = static_cast<std::uint32_t>(bytes.size()),
                               .buffer = bytes.data()});
    for (std::size_t i = 0; i < count && code == 0; ++i) model_[first + i] = values_ - count + 1 + i;
    return code;
  }
  slot_id write_new(std::size_t count) {
    const result<slot_id> first = tested_->allocate(count);
    EXPECT_TRUE(first.ok());
    EXPECT_EQ(write(first.value(), count), 0);
    return first.value();
  }
  void free(slot_id slot) {
    tested_->free(slot, 1);
    model_.erase(slot);
  }
  int read(slot_id slot, std::byte* into, std::uint64_t avoid = 0) {
    return transfer({.op = operation::read, .slot = slot, .buffer = into, .avoid = avoid});
  }
  // Every page, one by one, byte for byte.
  void expect_all() {
    std::vector<std::byte> found(page_bytes);
    std::vector<std::byte> expected(page_bytes);
    for (const auto& [slot, value] : model_) {
      fill_page(expected.data(), slot, value);
      ASSERT_EQ(read(slot, found.data()), 0) << slot;
      ASSERT_TRUE(found == expected) << "slot " << slot;
    }
  }
  void tend(std::uint64_t time_ns) {
    for (const std::uint64_t end = clock_.now + time_ns; clock_.now < end; clock_.now += ms) {
      static_cast<void>(tested_->tend());
    }
  }
  void tend_until_whole() {
    for (int i = 0; i < 600 && !tested_->is_whole(); ++i) tend(100 * ms);
    ASSERT_TRUE(tested_->is_whole());
    tested_->validate();
  }
  // It stops answering, and the layer knows.
  void take_down(std::size_t index) {
    members_[index]->error_code = ETIMEDOUT;
    tend(20 * ms);
  }
  void take_down_for_good(std::size_t index) {
    members_[index]->error_code = ETIMEDOUT;
    tend(3000 * ms);
  }
  [[nodiscard]] page_place place_of(slot_id slot) const {
    const stripe_table& table = tested_->books().table;
    const lock_guard guard(table.lock);
    return table.place_of(slot);
  }
  // Where the page itself is.
  [[nodiscard]] holder holder_of(slot_id slot) const {
    const stripe_table& table = tested_->books().table;
    const located where = table.locate(place_of(slot));
    const lock_guard guard(table.lock);
    return table.group_at(where.group).holders[where.column];
  }
  // A child of a fork reads everything after its parent has done something. Returns 0, or 1 for wrong bytes, or what
  // `judge` says in the child. Its parent's books are those of the fork, and its members are copies.
  int read_in_child(const std::function<void()>& parent_does, const std::function<int()>& judge) {
    tested_->keep_in_place(true);
    std::array<int, 2> done{};
    std::array<int, 2> ready{};
    EXPECT_EQ(pipe(done.data()), 0);
    EXPECT_EQ(pipe(ready.data()), 0);
    char byte = 0;
    const pid_t child = fork();
    if (child == 0) {
      tested_->after_fork_in_child();
      if (::write(ready[1], "x", 1) != 1 || ::read(done[0], &byte, 1) != 1) _exit(2);
      static_cast<void>(queue_.release());
      queue_ = tested_->open_channel(16).value();
      tends_ = false;
      expect_all();
      _exit(HasFailure() ? 1 : judge());
    }
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    parent_does();
    EXPECT_EQ(::write(done[1], "x", 1), 1);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    for (const int end : {done[0], done[1], ready[0], ready[1]}) close(end);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // A member on which the spare of a group is not complete yet; maximum_members: none.
  [[nodiscard]] std::size_t incomplete_spare() const {
    const stripe_table& table = tested_->books().table;
    const lock_guard guard(table.lock);
    for (std::uint64_t number = 0; number < table.groups_end(); ++number) {
      const stripe_group& seen = table.group_at(number);
      if (seen.holders[spare_holder].present && !seen.stale(spare_holder).empty()) {
        return seen.holders[spare_holder].member;
      }
    }
    return maximum_members;
  }
  [[nodiscard]] std::uint64_t stored() const {
    std::uint64_t sum = 0;
    for (const controlled* member : members_) sum += member->used();
    return sum;
  }

  manual_clock clock_;
  std::vector<controlled*> members_;
  std::unique_ptr<striped_backend> tested_;
  std::unique_ptr<channel> queue_;
  std::map<slot_id, std::uint64_t> model_;
  std::uint64_t values_ = no_value;
  completion last_;
  bool tends_ = true;
};

}  // namespace far::backend
