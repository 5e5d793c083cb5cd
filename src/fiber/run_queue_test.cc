#include "fiber/run_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

namespace far::fiber {
namespace {

struct run_queue_test : ::testing::Test {
  control_block& fiber(priority level = priority::normal) {
    blocks.push_back(std::make_unique<control_block>());
    blocks.back()->usual = level;
    blocks.back()->number = blocks.size();
    return *blocks.back();
  }
  std::uint64_t pop() {
    const control_block* const next = queue.pop();
    return next == nullptr ? 0 : next->number;
  }

  run_queue queue;
  std::vector<std::unique_ptr<control_block>> blocks;
};

TEST_F(run_queue_test, keeps_the_order_within_a_priority_and_takes_higher_ones_first) {
  queue.push(fiber(priority::normal));   // 1
  queue.push(fiber(priority::runtime));  // 2
  control_block& in_scope = fiber();     // 3
  in_scope.who.scope_depth = 1;
  queue.push(in_scope);
  queue.push(fiber(priority::normal));   // 4
  queue.push(fiber(priority::runtime));  // 5
  EXPECT_EQ(queue.size(), 5u);
  for (const std::uint64_t expected : {3u, 2u, 5u, 1u, 4u, 0u}) EXPECT_EQ(pop(), expected);
  EXPECT_EQ(queue.size(), 0u);
}

TEST_F(run_queue_test, a_low_priority_waits_for_a_bounded_number_of_others) {
  control_block& normal = fiber();
  control_block& runtime = fiber(priority::runtime);
  queue.push(normal);
  queue.push(runtime);
  control_block& hot = fiber();
  hot.who.scope_depth = 1;
  queue.push(hot);
  unsigned normal_after = 0;
  unsigned runtime_after = 0;
  for (unsigned i = 1; i <= 3 * run_queue::most_passed_over; ++i) {
    control_block* const next = queue.pop();
    if (next == &normal) normal_after = i;
    if (next == &runtime) runtime_after = i;
    if (next == &hot) queue.push(hot);
  }
  EXPECT_GT(runtime_after, run_queue::most_passed_over);
  EXPECT_GT(normal_after, runtime_after);
  EXPECT_LE(normal_after, run_queue::most_passed_over + 2);
  EXPECT_EQ(queue.turns_given(), 2u);
}

TEST_F(run_queue_test, half_of_the_highest_priority_is_stolen_and_pinned_ones_are_not) {
  worker* const somewhere = reinterpret_cast<worker*>(std::uintptr_t{64});
  for (int i = 0; i < 5; ++i) queue.push(fiber());   // 1 to 5
  control_block& pinned = fiber(priority::runtime);  // 6
  pinned.pinned = somewhere;
  queue.push(pinned);
  EXPECT_EQ(queue.stealable(), 5u);
  std::array<control_block*, run_queue::most_stolen> taken{};
  ASSERT_EQ(queue.steal(taken), 3u);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(taken[i]->number, i + 1);
  EXPECT_EQ(queue.size(), 3u);
  ASSERT_EQ(queue.steal(taken), 1u);
  ASSERT_EQ(queue.steal(taken), 1u);
  EXPECT_EQ(queue.steal(taken), 0u);
  EXPECT_EQ(pop(), 6u);
}

TEST_F(run_queue_test, pinned_fibers_and_others_take_turns) {
  worker* const here = reinterpret_cast<worker*>(std::uintptr_t{64});
  for (int i = 0; i < 3; ++i) queue.push(fiber());  // 1 to 3
  for (int i = 0; i < 3; ++i) {                     // 4 to 6
    control_block& pinned = fiber();
    pinned.pinned = here;
    queue.push(pinned);
  }
  std::vector<std::uint64_t> order;
  while (const control_block* next = queue.pop()) order.push_back(next->number);
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 4, 2, 5, 3, 6}));
}

}  // namespace
}  // namespace far::fiber
