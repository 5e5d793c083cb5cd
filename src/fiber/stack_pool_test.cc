#include "fiber/stack_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <system_error>
#include <vector>

#include "base/units.h"
#include "fiber/sanitizers.h"

namespace far::fiber {
namespace {

TEST(stack_pool, hands_out_separate_stacks_that_can_be_written_throughout) {
  stack_pool pool;
  std::vector<stack> taken;
  for (unsigned i = 0; i < 100; ++i) {
    taken.push_back(pool.take(default_stack_bytes()));
    ASSERT_GE(taken.back().bytes, default_stack_bytes());
    std::memset(taken.back().low, static_cast<int>(i), taken.back().bytes);
  }
  for (unsigned i = 0; i < 100; ++i) {
    EXPECT_EQ(taken[i].low[0], std::byte(i));
    EXPECT_EQ(taken[i].low[taken[i].bytes - 1], std::byte(i));
    pool.give_back(taken[i]);
  }
}

TEST(stack_pool, hands_out_again_what_came_back) {
  stack_pool pool;
  const stack first = pool.take(default_stack_bytes());
  const std::uint64_t mapped = pool.mapped_bytes();
  pool.give_back(first);
  const stack again = pool.take(default_stack_bytes());
  EXPECT_EQ(again.low, first.low);
  EXPECT_EQ(pool.mapped_bytes(), mapped);
  pool.give_back(again);
}

TEST(stack_pool, gives_at_least_the_smallest_and_as_much_as_asked_for) {
  stack_pool pool;
  const stack small = pool.take(1);
  EXPECT_GE(small.bytes, smallest_stack_bytes());
  const stack large = pool.take(3 * mib);
  EXPECT_GE(large.bytes, 3 * mib);
  pool.give_back(small);
  pool.give_back(large);
}

TEST(stack_pool, refuses_what_cannot_be_had_with_advice) {
  stack_pool pool;
  try {
    static_cast<void>(pool.take(std::size_t{1} << 50));
    FAIL() << "a stack of a pebibyte";
  } catch (const std::system_error& refused) {
    EXPECT_NE(std::string(refused.what()).find("run fewer fibers"), std::string::npos) << refused.what();
  }
}

TEST(stack_pool_death, the_area_below_a_stack_survives_no_access) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  stack_pool pool;
  const stack taken = pool.take(default_stack_bytes());
  EXPECT_DEATH(*static_cast<volatile std::byte*>(taken.low - 1) = std::byte{1}, "");
  EXPECT_DEATH(*static_cast<volatile std::byte*>(taken.low - stack_pool::guard_bytes) = std::byte{1}, "");
  pool.give_back(taken);
}

}  // namespace
}  // namespace far::fiber
