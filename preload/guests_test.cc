#include "preload/guests.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/units.h"
#include "pager/pager.h"

namespace far::preload {
namespace {

constexpr std::uint64_t budget = 256 * mib;
constexpr std::uint64_t minimum = pager::minimum_budget_bytes;

// A far heap that uses as much as it is given, up to what it needs, and misses while it has less.
struct heap {
  std::uint64_t needs_bytes = 0;
  engine::statistics counted;

  void run() {
    const std::uint64_t before = counted.local_bytes;
    counted.local_bytes = std::min(needs_bytes, counted.budget_bytes - counted.budget_bytes / 32);
    counted.misses += before < needs_bytes ? 1000 : 0;
  }
};

// A process under `farheap run`, whose guests ask about as often as the run door divides.
class process {
 public:
  process() { own.counted.budget_bytes = budget; }

  std::size_t add(std::uint64_t wanted_bytes, std::uint32_t runtimes = 1) {
    guest& added = all_.emplace_back();
    added.said.runtimes = runtimes;
    added.said.wanted_bytes = wanted_bytes;
    added.memory.counted.budget_bytes = runtimes * minimum;
    exchange(added);
    settling_rounds = 4;
    return all_.size() - 1;
  }
  heap& memory_of(std::size_t index) { return all_[index].memory; }
  void leave(std::size_t index) {
    all_[index].said.runtimes = 0;
    exchange(all_[index]);
  }
  void run(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      now_ns_ += 200'000'000;
      own.run();
      own.counted.budget_bytes = host.divide(budget_bytes, own.counted, now_ns_);
      for (guest& one : all_) {
        if (one.said.runtimes == 0) continue;
        one.memory.run();
        exchange(one);
      }
      // A newcomer has the minimum from the start, while others still come down for it.
      if (settling_rounds > 0) --settling_rounds;
      EXPECT_TRUE(settling_rounds > 0 || held() <= budget_bytes) << held();
    }
  }
  [[nodiscard]] std::uint64_t held() const {
    std::uint64_t sum = own.counted.local_bytes;
    for (const guest& one : all_) sum += one.said.runtimes == 0 ? 0 : one.memory.counted.local_bytes;
    return sum;
  }

  guests host;
  heap own;
  std::uint64_t budget_bytes = budget;
  int settling_rounds = 0;  // more may be held than there is

 private:
  struct guest {
    std::uint32_t number = 0;
    control::guest_report said;
    heap memory;
  };
  void exchange(guest& one) {
    one.said.counted = one.memory.counted;
    const std::uint64_t granted = host.exchange(one.number, one.said);
    if (one.said.runtimes != 0) one.memory.counted.budget_bytes = round_down(granted, page_bytes);
  }

  std::vector<guest> all_;
  std::uint64_t now_ns_ = 1'000'000'000'000'000;  // of a machine that has run for days
};

TEST(guests, without_any_the_run_door_has_the_whole_budget) {
  process one;
  one.run(3);
  EXPECT_EQ(one.own.counted.budget_bytes, budget);
  EXPECT_EQ(one.host.least_bytes(), minimum);
}

TEST(guests, a_guest_gets_what_the_run_door_does_not_need) {
  process one;
  const std::size_t guest = one.add(512 * mib);
  one.memory_of(guest).needs_bytes = 400 * mib;
  one.own.needs_bytes = 8 * mib;
  one.run(100);
  EXPECT_GT(one.memory_of(guest).counted.local_bytes, 200 * mib);
}

TEST(guests, both_have_a_part_when_both_need_more) {
  process one;
  one.own.needs_bytes = 400 * mib;
  one.run(10);
  const std::size_t guest = one.add(512 * mib);
  one.memory_of(guest).needs_bytes = 400 * mib;
  one.run(100);
  EXPECT_GT(one.memory_of(guest).counted.local_bytes, 80 * mib);
  EXPECT_GT(one.own.counted.local_bytes, 80 * mib);
}

TEST(guests, a_guest_never_gets_more_than_was_chosen_for_it) {
  process one;
  one.own.needs_bytes = 400 * mib;
  const std::size_t guest = one.add(48 * mib);
  one.memory_of(guest).needs_bytes = 400 * mib;
  for (int i = 0; i < 100; ++i) {
    one.run(1);
    EXPECT_LE(one.memory_of(guest).counted.budget_bytes, 48 * mib);
    if (i < 60) continue;
    EXPECT_GT(one.memory_of(guest).counted.budget_bytes, 47 * mib);
    EXPECT_GT(one.own.counted.budget_bytes, budget - 49 * mib) << "what the guest does not take is not kept for it";
  }
}

TEST(guests, a_lower_budget_reaches_all) {
  process one;
  one.own.needs_bytes = 400 * mib;
  const std::size_t guest = one.add(512 * mib);
  one.memory_of(guest).needs_bytes = 400 * mib;
  one.run(50);
  one.budget_bytes = budget / 4;
  one.settling_rounds = 30;
  one.run(60);
}

TEST(guests, several_runtimes_of_a_guest_have_the_minimum_each) {
  process one;
  one.own.needs_bytes = 400 * mib;
  const std::size_t guest = one.add(64 * mib, 4);
  EXPECT_EQ(one.memory_of(guest).counted.budget_bytes, 64 * mib);
  EXPECT_EQ(one.host.least_bytes(), 5 * minimum);
  one.run(50);
  EXPECT_EQ(one.memory_of(guest).counted.budget_bytes, 64 * mib);
}

TEST(guests, minima_that_are_not_used_are_set_aside_once) {
  process one;
  one.own.needs_bytes = 400 * mib;
  const std::size_t guest = one.add(80 * mib, 4);
  for (const std::uint64_t whole : {budget, budget / 2}) {
    one.budget_bytes = whole;
    one.settling_rounds = 30;
    one.run(60);
    EXPECT_EQ(one.memory_of(guest).counted.budget_bytes, 4 * minimum);
    EXPECT_LE(one.own.counted.budget_bytes, whole - 3 * minimum);
    EXPECT_GE(one.own.counted.budget_bytes, whole - 4 * minimum);
  }
}

TEST(guests, a_newcomer_gets_room_to_start) {
  process one;
  one.own.needs_bytes = 100 * mib;
  one.run(20);
  const std::size_t guest = one.add(128 * mib);
  one.run(4);
  EXPECT_GT(one.memory_of(guest).counted.budget_bytes, 24 * mib);
}

// The budgets that a guest applies are whole pages, and so a little less than what was chosen.
TEST(guests, a_guest_that_has_nearly_all_that_it_takes_leaves_the_rest) {
  process one;
  one.own.needs_bytes = 400 * mib;
  const std::size_t small = one.add(48 * mib + 100);
  const std::size_t large = one.add(512 * mib);
  one.memory_of(small).needs_bytes = one.memory_of(large).needs_bytes = 400 * mib;
  one.run(100);
  EXPECT_GT(one.memory_of(small).counted.budget_bytes, 47 * mib);
  EXPECT_GT(one.memory_of(large).counted.budget_bytes, 90 * mib);
  EXPECT_GT(one.own.counted.budget_bytes, 90 * mib);
}

// Where only such a guest misses, the others keep what they have.
TEST(guests, a_guest_that_has_all_that_it_takes_takes_nothing_from_others) {
  process one;
  one.own.needs_bytes = 180 * mib;
  one.run(20);
  const std::size_t guest = one.add(48 * mib);
  one.memory_of(guest).needs_bytes = 400 * mib;
  one.run(50);
  for (int i = 0; i < 50; ++i) {
    one.run(1);
    EXPECT_GE(one.own.counted.local_bytes, 180 * mib);
    EXPECT_GT(one.memory_of(guest).counted.budget_bytes, 46 * mib);
  }
}

TEST(guests, what_a_guest_counted_stays_when_it_leaves) {
  process one;
  const std::size_t guest = one.add(64 * mib);
  one.memory_of(guest).needs_bytes = 100 * mib;
  one.run(20);
  const engine::statistics counted = one.memory_of(guest).counted;
  EXPECT_EQ(one.host.add_to({.misses = 5}).misses, counted.misses + 5);
  EXPECT_EQ(one.host.add_to({.local_bytes = 5}).local_bytes, counted.local_bytes + 5);
  one.leave(guest);
  EXPECT_EQ(one.host.add_to({.misses = 5}).misses, counted.misses + 5);
  EXPECT_EQ(one.host.add_to({.local_bytes = 5}).local_bytes, 5u);
  EXPECT_EQ(one.host.least_bytes(), minimum);
  one.run(1);
  EXPECT_EQ(one.own.counted.budget_bytes, budget);
  one.add(64 * mib);
  EXPECT_EQ(one.host.add_to({.misses = 5}).misses, counted.misses + 5) << "the place is new for the next";
}

TEST(guests, a_child_of_fork_has_none) {
  process one;
  const std::size_t guest = one.add(64 * mib);
  one.memory_of(guest).needs_bytes = 100 * mib;
  one.run(20);
  one.host.settle_in_child();
  EXPECT_EQ(one.host.least_bytes(), minimum);
  EXPECT_EQ(one.host.add_to({.local_bytes = 5}).local_bytes, 5u);
  EXPECT_EQ(one.host.divide(budget, one.own.counted, 2'000'000'000'000'000), budget);
}

TEST(guests, refuses_another_interface_and_more_than_it_has_room_for) {
  guests host;
  std::uint32_t number = 0;
  control::guest_report said{.runtimes = 1, .wanted_bytes = 64 * mib, .counted = {}};
  said.interface = control::guest_interface + 1;
  EXPECT_EQ(host.exchange(number, said), 0u);
  said.interface = control::guest_interface;
  for (std::size_t i = 0; i < guests::most; ++i) {
    number = 0;
    EXPECT_EQ(host.exchange(number, said), minimum);
    EXPECT_EQ(number, i + 1);
  }
  number = 0;
  EXPECT_EQ(host.exchange(number, said), 0u);
  number = guests::most + 1;
  EXPECT_EQ(host.exchange(number, said), 0u);
}

}  // namespace
}  // namespace far::preload
