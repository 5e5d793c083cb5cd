#include "fiber/timer_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace far::fiber {
namespace {

struct noted : timer {
  std::vector<noted*>* order = nullptr;
};

void note(timer& self) noexcept {
  auto& one = static_cast<noted&>(self);
  one.order->push_back(&one);
}

TEST(timer_heap, expires_in_the_order_of_deadlines_and_equal_ones_in_the_order_of_setting) {
  timer_heap heap;
  std::vector<noted*> order;
  std::vector<noted> timers(6);
  const std::uint64_t at[] = {30, 10, 20, 10, 30, 40};
  for (std::size_t i = 0; i < timers.size(); ++i) {
    timers[i].at_ns = at[i];
    timers[i].expired = note;
    timers[i].order = &order;
    heap.set(timers[i]);
  }
  EXPECT_EQ(heap.earliest_ns(), 10u);
  EXPECT_EQ(heap.expire(9), 0u);
  EXPECT_EQ(heap.expire(30), 5u);
  EXPECT_EQ(order, (std::vector<noted*>{&timers[1], &timers[3], &timers[2], &timers[0], &timers[4]}));
  heap.cancel(timers[0]);  // expired already
  heap.cancel(timers[5]);
  EXPECT_EQ(heap.earliest_ns(), timer_heap::none);
}

TEST(timer_heap, agrees_with_a_sorted_list_under_random_operations) {
  std::mt19937_64 random(4);
  timer_heap heap;
  std::vector<noted*> order;
  std::vector<std::unique_ptr<noted>> set;
  for (unsigned round = 0; round < 20'000; ++round) {
    const auto choice = random() % 10;
    if (choice < 5) {
      auto fresh = std::make_unique<noted>();
      fresh->at_ns = random() % 1000;
      fresh->expired = note;
      fresh->order = &order;
      heap.set(*fresh);
      set.push_back(std::move(fresh));
    } else if (choice < 8 && !set.empty()) {
      const std::size_t i = random() % set.size();
      heap.cancel(*set[i]);
      set.erase(set.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      const std::uint64_t now = random() % 400;
      order.clear();
      const auto due = std::partition(set.begin(), set.end(), [&](const auto& one) { return one->at_ns > now; });
      std::sort(due, set.end(), [](const auto& a, const auto& b) {
        return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->sequence < b->sequence;
      });
      std::vector<noted*> expected;
      for (auto one = due; one != set.end(); ++one) expected.push_back(one->get());
      EXPECT_EQ(heap.expire(now), expected.size());
      ASSERT_EQ(order, expected) << "round " << round;
      set.erase(due, set.end());
    }
    std::uint64_t earliest = timer_heap::none;
    for (const auto& one : set) earliest = std::min(earliest, one->at_ns);
    ASSERT_EQ(heap.earliest_ns(), earliest) << "round " << round;
  }
}

}  // namespace
}  // namespace far::fiber
