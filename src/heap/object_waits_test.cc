#include "heap/object_waits.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "far/detail/word.h"
#include "tests/support/eventually.h"

namespace far::heap {
namespace {

namespace word = detail::word;

// A thread waits for an object that is being fetched.
class object_waits_test : public ::testing::Test {
 protected:
  // `now`: the owner's word when the fetch has ended.
  void expect_end_with(std::uint64_t now) {
    owner_ = now;
    waits_.wake_all(owner_);
    EXPECT_TRUE(eventually([&] { return is_done_.load(); }));
    owner_ = 0;  // or else, after a failure, the thread would wait for ever
    waits_.wake_all(owner_);
    waiter_.join();
  }

  object_waits waits_;
  std::atomic<std::uint64_t> owner_{word::of_small(0x10010) | word::fetching};
  std::atomic<bool> is_done_{false};
  std::thread waiter_{[this] {
    waits_.wait_while_fetching(owner_);
    is_done_ = true;
  }};
};

TEST_F(object_waits_test, end_when_the_object_has_come) {
  EXPECT_FALSE(is_done_);
  expect_end_with(word::of_small(0x20010));
}

// Its word has both flags, and before the one that waits looks, it may be there in the place of what was fetched.
TEST_F(object_waits_test, end_when_a_huge_object_takes_the_place) {
  expect_end_with(word::of_huge(0x30000));
}

}  // namespace
}  // namespace far::heap
