// Members of a replicated far tier that do what the test says, and a layer over them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/replicated/replicated_backend.h"
#include "backend/slot_allocator.h"

namespace far::backend {

// A member in memory whose transfers wait until the test lets them go.
class controlled final : public backend {
 public:
  explicit controlled(std::string name, std::uint64_t slots = 8192)
      : name_(std::move(name)), slots_(slots), store_(slots * page_bytes) {
    slots_.extend(slots);
  }

  bool holds_back_reads = false;
  bool holds_back_writes = false;
  bool waits_for_time = false;
  int error_code = 0;            // of transfers that run from now on
  bool has_forgotten = false;    // ESTALE for slots allocated before forget()
  std::set<slot_id> unreadable;  // EIO, until the slot is written or freed
  std::set<slot_id> unwritable;  // EIO, until it is freed
  int allocate_code = 0;
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t tendings = 0;
  std::uint64_t exits = 0;
  std::uint64_t refused_retirements = 0;  // that are still to be put off
  std::uint64_t retirements = 0;
  std::uint64_t latency_ns = 0;
  std::uint64_t granted_ns = 0;
  std::uint64_t identity = 0;
  bool is_draining = false;
  std::function<void()> before_free;

  // Its memory has an error.
  void damage(slot_id slot) { store_[slot * page_bytes + 7] ^= std::byte{1}; }
  void forget() {
    ++epoch_;
    std::fill(store_.begin(), store_.end(), std::byte{0xdb});
  }
  [[nodiscard]] std::uint64_t used() const { return slots_.used(); }
  [[nodiscard]] std::byte at(slot_id slot) const { return store_[slot * page_bytes]; }

  result<slot_id> allocate(std::size_t count) override {
    if (allocate_code != 0) return error{"no", allocate_code};
    if (is_draining) return out_of_slots();
    const auto first = slots_.allocate(count);
    if (!first) return out_of_slots();
    for (std::size_t i = 0; i < count; ++i) epochs_[*first + i] = epoch_;
    return *first;
  }
  void free(slot_id first, std::size_t count) override {
    if (before_free) before_free();
    for (std::set<slot_id>* bad : {&unreadable, &unwritable}) {
      bad->erase(bad->lower_bound(first), bad->lower_bound(first + count));
    }
    slots_.free(first, count);
  }
  result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  int open_code = 0;
  std::uint64_t tend() override { return ++tendings, no_tending; }
  void prepare_exit() override { ++exits; }
  bool retire() override {
    if (refused_retirements > 0) return --refused_retirements, false;
    return ++retirements, true;
  }
  capacity report() const override { return {slots_.capacity(), slots_.used()}; }
  speed expected_speed() const override { return {latency_ns, 0}; }
  std::string describe() const override { return name_; }
  bool reduces_rows() const override { return true; }
  bool answers() const override { return !is_unreachable(error_code); }
  std::uint64_t incarnation() const override { return static_cast<std::uint64_t>(epoch_); }
  std::uint64_t lease_ns() const override { return granted_ns; }
  bool lends() const override { return !is_draining; }
  std::uint64_t server_identity() const override { return identity; }

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
    for (const request& io : batch.first(taken)) {
      waiting_.push_back(io);
      ++(io.op == operation::read ? owner_.reads : owner_.writes);
    }
    return taken;
  }
  std::size_t poll(std::span<completion> done) override {
    std::size_t count = 0;
    for (std::size_t i = 0; i < waiting_.size() && count < done.size();) {
      const request io = waiting_[i];
      if (io.op == operation::read ? owner_.holds_back_reads : owner_.holds_back_writes) {
        ++i;
        continue;
      }
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      done[count++] = {io.cookie, run(io)};
    }
    return count;
  }
  void wait(std::uint64_t /*timeout_ns*/) override {}
  std::size_t in_flight() const override { return waiting_.size(); }
  bool waits_for_time() const override { return owner_.waits_for_time; }

 private:
  int run(const request& io) {
    if (owner_.error_code != 0) return owner_.error_code;
    if (owner_.epochs_[io.slot] != owner_.epoch_) return ESTALE;
    std::byte* const stored = owner_.store_.data() + io.slot * page_bytes + io.offset_bytes;
    if (io.reduce != nullptr) return answer_rows(*io.reduce, io.buffer);
    const std::size_t end = io.slot + (io.offset_bytes + io.length_bytes + page_bytes - 1) / page_bytes;
    std::set<slot_id>& bad = io.op == operation::read ? owner_.unreadable : owner_.unwritable;
    if (bad.lower_bound(io.slot) != bad.lower_bound(end)) return EIO;
    if (io.op == operation::read) {
      std::copy_n(stored, io.length_bytes, io.buffer);
    } else {
      std::copy_n(io.buffer, io.length_bytes, stored);
      owner_.unreadable.erase(owner_.unreadable.lower_bound(io.slot), owner_.unreadable.lower_bound(end));
    }
    return 0;
  }

  int answer_rows(const page_reduction& asked, std::byte* to) {
    std::vector<const std::byte*> pages;
    for (const slot_id slot : asked.slots) {
      if (owner_.epochs_[slot] != owner_.epoch_) return ESTALE;
      pages.push_back(owner_.store_.data() + slot * page_bytes);
    }
    answer_about_rows(asked, pages, to);
    return 0;
  }

  controlled& owner_;
  const std::size_t depth_;
  std::vector<request> waiting_;
};

inline result<std::unique_ptr<channel>> controlled::open_channel(std::size_t depth) {
  if (open_code != 0) return error{"no queue", open_code};
  return std::unique_ptr<channel>(std::make_unique<queue>(*this, depth));
}

class manual_clock final : public platform::clock {
 public:
  std::uint64_t now_ns() const override { return now; }
  std::uint64_t now = 1'000'000'000;
};

inline constexpr std::uint64_t ms = 1'000'000;

// A layer over such members, and ways to use it.
class replicated_test : public testing::Test {
 protected:
  std::unique_ptr<controlled> make_member(std::uint64_t slots = 8192) {
    auto added = std::make_unique<controlled>("m" + std::to_string(members_.size()), slots);
    members_.push_back(added.get());
    return added;
  }
  void open(std::size_t count, std::size_t copies, std::uint64_t member_slots = 8192, std::size_t absent = 0) {
    std::vector<std::unique_ptr<backend>> owned;
    for (std::size_t i = 0; i < count; ++i) {
      owned.push_back(make_member(member_slots));
      if (i < absent) members_.back()->error_code = ECONNREFUSED;
    }
    replicated_options chosen;
    chosen.copies = copies;
    chosen.clock = &clock_;
    chosen.lost_after_ns = 1000 * ms;
    queue_.reset();  // that of the layer before
    tested_ = std::move(replicated_backend::create(std::move(owned), chosen)).value();
    queue_ = tested_->open_channel(16).value();
  }
  ~replicated_test() override {
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
  // The contents of the slot, or -1.
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
  result<void> add(std::uint64_t slots = 8192) {
    auto added = make_member(slots);
    std::string name = added->describe();
    return tested_->add_member(std::move(added), std::move(name));
  }
  void tend_until_whole() {
    for (int i = 0; i < 600 && !tested_->is_whole(); ++i) tend(100 * ms);
    ASSERT_TRUE(tested_->is_whole());
    tested_->validate();
  }
  // A value in one slot of each of the groups; they are checked by expect_values().
  void fill(slot_id first, std::uint64_t groups) {
    for (slot_id slot = first; slot < first + groups * group_slots; slot += 100) {
      ASSERT_EQ(write(slot, static_cast<int>(slot % 199)), 0);
    }
  }
  void expect_values(slot_id first, std::uint64_t groups) {
    for (slot_id slot = first; slot < first + groups * group_slots; slot += 100) {
      ASSERT_EQ(read(slot), static_cast<int>(slot % 199)) << slot;
    }
  }
  // Expects every group on the members that it hashes to.
  void expect_best_places() {
    std::vector<std::uint64_t> hashes;
    for (const auto& member : tested_->members()) hashes.push_back(hash_of_name(member.name));
    const layer& books = tested_->books();
    for (std::uint64_t number = 0; number < books.groups_end.load(); ++number) {
      const group& seen = books.group_at(number);
      if (!seen.placed) continue;
      const member_order order = order_for(hashes, number);
      for (std::size_t i = 0; i < books.copies; ++i) {
        const auto holds = [&](const copy& held) { return held.present && held.member == order.members[i]; };
        EXPECT_TRUE(std::any_of(seen.copies.begin(), seen.copies.end(), holds)) << "group " << number;
      }
    }
  }
  // Member `index` stops answering, and the layer has noticed.
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

}  // namespace far::backend
