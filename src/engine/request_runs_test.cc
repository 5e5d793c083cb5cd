#include "engine/request_runs.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace far::engine {
namespace {

class runs_of_requests : public testing::Test {
 protected:
  [[nodiscard]] backend::request page(std::size_t place, backend::slot_id slot) {
    return {.op = backend::operation::write, .slot = slot, .buffer = bytes_.data() + place * page_bytes};
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(16 * page_bytes);
  std::array<backend::request, 8> into_;
};

TEST_F(runs_of_requests, a_cookie_comes_back) {
  for (const std::size_t number : {std::size_t{0}, std::size_t{1}, std::size_t{0xffff}}) {
    const run_cookie cookie{.group = 0xffff'ffff - number, .first = number, .count = 0xffff - number};
    const run_cookie back = run_cookie::unpack(cookie.pack());
    EXPECT_EQ(back.group, cookie.group);
    EXPECT_EQ(back.first, cookie.first);
    EXPECT_EQ(back.count, cookie.count);
  }
}

TEST_F(runs_of_requests, what_follows_in_slots_and_in_memory_is_one_request) {
  request_runs runs(into_, 5);
  for (const std::size_t i : {2, 3, 4}) runs.add(i, page(i, 100 + i));
  ASSERT_EQ(runs.all().size(), 1U);
  const backend::request& request = runs.all()[0];
  EXPECT_EQ(request.slot, 102U);
  EXPECT_EQ(request.buffer, bytes_.data() + 2 * page_bytes);
  EXPECT_EQ(request.length_bytes, 3 * page_bytes);
  const run_cookie cookie = run_cookie::unpack(request.cookie);
  EXPECT_EQ(cookie.group, 5U);
  EXPECT_EQ(cookie.first, 2U);
  EXPECT_EQ(cookie.count, 3U);
}

TEST_F(runs_of_requests, a_gap_in_slots_or_in_memory_begins_another) {
  request_runs runs(into_, 0);
  runs.add(0, page(0, 10));
  runs.add(1, page(1, 12));  // a slot is left out
  runs.add(3, page(3, 13));  // a page is left out
  runs.add(4, page(4, 14));
  ASSERT_EQ(runs.all().size(), 3U);
  EXPECT_EQ(runs.all()[0].length_bytes, page_bytes);
  EXPECT_EQ(runs.all()[1].length_bytes, page_bytes);
  EXPECT_EQ(runs.all()[2].length_bytes, 2 * page_bytes);
  EXPECT_EQ(run_cookie::unpack(runs.all()[2].cookie).first, 3U);
}

TEST_F(runs_of_requests, a_page_alone_is_not_joined) {
  request_runs runs(into_, 0);
  runs.add(0, page(0, 10));
  runs.add_alone(1, page(1, 11));
  ASSERT_EQ(runs.all().size(), 2U);
  EXPECT_EQ(run_cookie::unpack(runs.all()[1].cookie).count, 1U);
}

TEST_F(runs_of_requests, sorted_pages_fall_into_ranges) {
  const std::array<page_id, 6> pages = {3, 4, 5, 9, 11, 12};
  std::array<page_range, 6> ranges;
  ASSERT_EQ(put_runs(pages, ranges), 3U);
  EXPECT_EQ(ranges[0].first, 3U);
  EXPECT_EQ(ranges[0].count, 3U);
  EXPECT_EQ(ranges[1].first, 9U);
  EXPECT_EQ(ranges[1].count, 1U);
  EXPECT_EQ(ranges[2].first, 11U);
  EXPECT_EQ(ranges[2].count, 2U);
  EXPECT_EQ(put_runs({}, ranges), 0U);
}

}  // namespace
}  // namespace far::engine
