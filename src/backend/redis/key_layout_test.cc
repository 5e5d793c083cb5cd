#include "backend/redis/key_layout.h"

#include <gtest/gtest.h>

namespace far::backend {
namespace {

// Every page has a place of its own, in the order of slots, and a string ends where the next one begins.
TEST(key_layout, pages_follow_one_another) {
  string_place expected{0, 0, bytes_of_string(0)};
  for (slot_id slot = 0; slot < 3 * wire::block_slots; ++slot) {
    const string_place found = locate(slot, 0);
    ASSERT_EQ(found.string, expected.string) << slot;
    ASSERT_EQ(found.offset_bytes, expected.offset_bytes) << slot;
    ASSERT_EQ(found.left_bytes, expected.left_bytes) << slot;
    expected.offset_bytes += page_bytes;
    expected.left_bytes -= page_bytes;
    if (expected.left_bytes == 0) expected = {expected.string + 1, 0, bytes_of_string(expected.string + 1)};
  }
}

TEST(key_layout, a_position_may_lie_in_later_slots) {
  const string_place far_on = locate(3, 600 * page_bytes + 17);
  EXPECT_EQ(far_on.string, locate(603, 0).string);
  EXPECT_EQ(far_on.offset_bytes, locate(603, 0).offset_bytes + 17);
  EXPECT_EQ(far_on.left_bytes, locate(603, 0).left_bytes - 17);
}

}  // namespace
}  // namespace far::backend
