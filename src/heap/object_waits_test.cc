#include "heap/object_waits.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "far/detail/word.h"
#include "tests/support/eventually.h"

namespace far::heap {
namespace {

namespace word = detail::word;

TEST(object_waits, end_when_the_object_has_come) {
  object_waits waits;
  std::atomic<std::uint64_t> owner{word::of_small(0x10010) | word::fetching};
  std::atomic<bool> is_done{false};
  std::thread waiter([&] {
    waits.wait_while_fetching(owner);
    is_done = true;
  });
  EXPECT_FALSE(is_done);
  owner = word::of_small(0x20010);
  waits.wake_all(owner);
  EXPECT_TRUE(eventually([&] { return is_done.load(); }));
  waiter.join();
}

// Its word has both flags, and before the one that waits looks, it may be there in the place of what was fetched.
TEST(object_waits, end_when_a_huge_object_takes_the_place) {
  object_waits waits;
  std::atomic<std::uint64_t> owner{word::of_small(0x10010) | word::fetching};
  std::atomic<bool> is_done{false};
  std::thread waiter([&] {
    waits.wait_while_fetching(owner);
    is_done = true;
  });
  owner = word::of_huge(0x30000);
  waits.wake_all(owner);
  EXPECT_TRUE(eventually([&] { return is_done.load(); }));
  owner = 0;  // or else, after a failure, the thread would wait for ever
  waits.wake_all(owner);
  waiter.join();
}

}  // namespace
}  // namespace far::heap
